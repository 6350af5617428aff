package ci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Hub is a client for the rulesets of a repository on GitHub.
type Hub struct {
	// API is https://api.github.com but for tests and GitHub Enterprise.
	API        string
	Repository string // OWNER/NAME
	Token      string
	Out        io.Writer
}

const answerBytesMax = 1 << 20

type existing struct {
	ID         int64  `json:"id"`
	Name       string `json:"name"`
	Target     string `json:"target"`
	SourceType string `json:"source_type"`
}

// Preview prints the calls that Apply would make. It makes no call, so it does not know the existing rulesets.
func (hub Hub) Preview(rulesets []Ruleset) error {
	fmt.Fprintf(hub.Out, "GET %s\n", hub.listURL(1))
	for _, ruleset := range rulesets {
		body, err := json.MarshalIndent(ruleset, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintf(hub.Out, "POST %s    (PUT %s/ID if the %s ruleset %q is there)\n%s\n", hub.rulesetsURL(), hub.rulesetsURL(), ruleset.Target, ruleset.Name, body)
	}
	return nil
}

// Apply creates the rulesets, or replaces existing ones with the same target and name. It keeps all others, and prints their names.
func (hub Hub) Apply(ctx context.Context, rulesets []Ruleset) error {
	if hub.Token == "" {
		return errors.New("there is no token; set $GITHUB_TOKEN to one with the permission Administration (write) of the repository, or use --dry-run")
	}
	there, err := hub.list(ctx)
	if err != nil {
		return err
	}
	for _, ruleset := range rulesets {
		method, url, verb := http.MethodPost, hub.rulesetsURL(), "created"
		for index, one := range there {
			if one.Name == ruleset.Name && one.Target == ruleset.Target && one.SourceType == "Repository" {
				method, url, verb = http.MethodPut, fmt.Sprintf("%s/%d", hub.rulesetsURL(), one.ID), "replaced"
				there = append(there[:index], there[index+1:]...)
				break
			}
		}
		body, err := json.Marshal(ruleset)
		if err != nil {
			return err
		}
		if _, err := hub.call(ctx, method, url, body); err != nil {
			return fmt.Errorf("%s: %w", ruleset.file, err)
		}
		fmt.Fprintf(hub.Out, "%s: %s\n", ruleset.file, verb)
	}
	for _, one := range there {
		fmt.Fprintf(hub.Out, "the %s ruleset %q of the %s stays as it is\n", one.Target, one.Name, strings.ToLower(one.SourceType))
	}
	return nil
}

func (hub Hub) rulesetsURL() string { return hub.API + "/repos/" + hub.Repository + "/rulesets" }

func (hub Hub) listURL(page int) string {
	return fmt.Sprintf("%s?includes_parents=true&per_page=100&page=%d", hub.rulesetsURL(), page)
}

func (hub Hub) list(ctx context.Context) ([]existing, error) {
	var all []existing
	for page := 1; ; page++ {
		text, err := hub.call(ctx, http.MethodGet, hub.listURL(page), nil)
		if err != nil {
			return nil, err
		}
		var some []existing
		if err := json.Unmarshal(text, &some); err != nil {
			return nil, fmt.Errorf("GET %s: the answer is not a list of rulesets: %w", hub.listURL(page), err)
		}
		all = append(all, some...)
		if len(some) < 100 {
			return all, nil
		}
	}
}

// call makes one API call. Its errors contain the message of GitHub, but never the token.
func (hub Hub) call(ctx context.Context, method, url string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/vnd.github+json")
	request.Header.Set("Authorization", "Bearer "+hub.Token)
	request.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerBytesMax))
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 300 {
		return text, nil
	}
	var answer struct {
		Message string `json:"message"`
		Errors  []any  `json:"errors"`
	}
	// If the response does not have these fields, they stay empty.
	_ = json.Unmarshal(text, &answer)
	remedy := map[int]string{
		http.StatusUnauthorized:        "; the token is wrong or has expired",
		http.StatusForbidden:           "; the token needs the permission Administration (write), and private repositories need a plan with rulesets",
		http.StatusNotFound:            "; check the repository's name, and that the token may see it",
		http.StatusUnprocessableEntity: "; change the ruleset",
	}[response.StatusCode]
	return nil, fmt.Errorf("%s %s: %s: %s %s%s", method, url, response.Status, answer.Message, fmt.Sprint(answer.Errors...), remedy)
}
