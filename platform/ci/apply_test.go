package ci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const token = "ghp_canary"

// fakeHub stands for GitHub: it has rulesets and keeps what it is given.
type fakeHub struct {
	there  []existing
	calls  []string
	bodies []Ruleset
	status int
}

func (fake *fakeHub) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	fake.calls = append(fake.calls, request.Method+" "+request.URL.Path)
	if request.Header.Get("Authorization") != "Bearer "+token {
		response.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(response, `{"message":"Bad credentials"}`)
		return
	}
	if request.Method == http.MethodGet {
		var page int
		fmt.Sscan(request.URL.Query().Get("page"), &page)
		from, to := min((page-1)*100, len(fake.there)), min(page*100, len(fake.there))
		json.NewEncoder(response).Encode(append([]existing{}, fake.there[from:to]...))
		return
	}
	if fake.status != 0 {
		response.WriteHeader(fake.status)
		fmt.Fprint(response, `{"message":"Validation Failed","errors":["Invalid rule 'x'"]}`)
		return
	}
	var ruleset Ruleset
	text, _ := io.ReadAll(request.Body)
	if err := strict(text, &ruleset); err != nil {
		response.WriteHeader(http.StatusBadRequest)
		return
	}
	fake.bodies = append(fake.bodies, ruleset)
	fmt.Fprint(response, `{}`)
}

func apply(t *testing.T, fake *fakeHub, token string) (string, error) {
	t.Helper()
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	rulesets, err := ReadRulesets(filepath.Join(root, ".github/rulesets"))
	must(t, err)
	var out bytes.Buffer
	err = Hub{API: server.URL, Repository: "team/shop", Token: token, Out: &out}.Apply(t.Context(), rulesets)
	return out.String(), err
}

func TestRulesetsAreCreatedAndReplaced(t *testing.T) {
	fake := &fakeHub{there: []existing{
		{7, "main", "branch", "Repository"}, {8, "main", "tag", "Repository"}, {9, "versions", "tag", "Organization"},
	}}
	out, err := apply(t, fake, token)
	must(t, err)
	want := []string{"GET /repos/team/shop/rulesets", "PUT /repos/team/shop/rulesets/7", "POST /repos/team/shop/rulesets"}
	if !slices.Equal(fake.calls, want) {
		t.Errorf("%q\nwant %q", fake.calls, want)
	}
	for _, line := range []string{
		"main.json: replaced", "versions.json: created", `the tag ruleset "main" of the repository stays as it is`, `the tag ruleset "versions" of the organization stays`,
	} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is not in %s", line, out)
		}
	}
	if len(fake.bodies) != 2 || fake.bodies[0].BypassActors == nil || len(fake.bodies[0].Rules) != 5 {
		t.Errorf("%+v", fake.bodies)
	}
}

func TestAllPagesOfRulesetsAreRead(t *testing.T) {
	fake := &fakeHub{}
	for id := range int64(100) {
		fake.there = append(fake.there, existing{id, fmt.Sprint("other", id), "branch", "Repository"})
	}
	fake.there = append(fake.there, existing{500, "versions", "tag", "Repository"})
	_, err := apply(t, fake, token)
	must(t, err)
	if !slices.Contains(fake.calls, "PUT /repos/team/shop/rulesets/500") {
		t.Errorf("%q", fake.calls)
	}
}

func TestWhatGitHubRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		fake    *fakeHub
		token   string
		message string
	}{
		"no token":       {&fakeHub{}, "", "set $GITHUB_TOKEN"},
		"a wrong token":  {&fakeHub{}, "ghp_other", "Bad credentials"},
		"too few rights": {&fakeHub{status: http.StatusForbidden}, token, "Administration (write)"},
		"no repository":  {&fakeHub{status: http.StatusNotFound}, token, "check the repository's name"},
		"a wrong rule":   {&fakeHub{status: http.StatusUnprocessableEntity}, token, "main.json: POST"},
	} {
		out, err := apply(t, row.fake, row.token)
		if err == nil || !strings.Contains(err.Error(), row.message) {
			t.Errorf("%s: %v, want %q", name, err, row.message)
		}
		if strings.Contains(out+fmt.Sprint(err), "ghp_") {
			t.Errorf("%s: the token is shown: %s %v", name, out, err)
		}
	}
}

// A preview makes no call, and prints bodies that are whole rulesets.
func TestAPreviewPrintsWhatWouldBeSent(t *testing.T) {
	rulesets, err := ReadRulesets(filepath.Join(root, ".github/rulesets"))
	must(t, err)
	var out bytes.Buffer
	must(t, Hub{API: "http://127.0.0.1:1", Repository: "team/shop", Out: &out}.Preview(rulesets))
	parts := strings.Split(out.String(), "POST http://127.0.0.1:1/repos/team/shop/rulesets ")
	if len(parts) != 3 {
		t.Fatal(out.String())
	}
	for index, part := range parts[1:] {
		_, body, _ := strings.Cut(part, "\n")
		var ruleset Ruleset
		must(t, strict([]byte(body), &ruleset))
		if ruleset.Name != rulesets[index].Name || len(ruleset.Rules) != len(rulesets[index].Rules) {
			t.Errorf("%s", body)
		}
	}
}
