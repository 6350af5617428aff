package ci

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The app that reports the checks of GitHub Actions. Without it in the rule, anyone who can write a status could report a check.
const actionsApp = 15368

// Ruleset is a ruleset in the format of GitHub's API.
type Ruleset struct {
	file         string
	Name         string             `json:"name"`
	Target       string             `json:"target"`
	Enforcement  string             `json:"enforcement"`
	BypassActors *[]json.RawMessage `json:"bypass_actors"`
	Conditions   struct {
		RefName struct {
			Include []string `json:"include"`
			Exclude []string `json:"exclude"`
		} `json:"ref_name"`
	} `json:"conditions"`
	Rules []Rule `json:"rules"`
}

// Rule is one rule with parameters of its type.
type Rule struct {
	Type       string          `json:"type"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

type pullRequestRule struct {
	Approvals            int      `json:"required_approving_review_count"`
	DismissesStale       bool     `json:"dismiss_stale_reviews_on_push"`
	NeedsCodeOwner       bool     `json:"require_code_owner_review"`
	NeedsLastPush        bool     `json:"require_last_push_approval"`
	NeedsResolvedThreads bool     `json:"required_review_thread_resolution"`
	MergeMethods         []string `json:"allowed_merge_methods"`
}

type statusChecksRule struct {
	IsStrict       bool             `json:"strict_required_status_checks_policy"`
	SkipsNewBranch bool             `json:"do_not_enforce_on_create"`
	Checks         []requiredStatus `json:"required_status_checks"`
}

type requiredStatus struct {
	Context string `json:"context"`
	App     int    `json:"integration_id"`
}

// ReadRulesets reads all rulesets of a folder. An unknown field is an error: GitHub would ignore it.
func ReadRulesets(folder string) ([]Ruleset, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no ruleset; name the repository's root", folder)
	}
	var rulesets []Ruleset
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		ruleset := Ruleset{file: filepath.Base(file)}
		if err := strict(text, &ruleset); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		rulesets = append(rulesets, ruleset)
	}
	return rulesets, nil
}

func strict(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// CheckRulesets returns the problems of the rulesets. The default branch and the version tags must be protected without exceptions, and the required
// checks must be jobs that run on each pull request.
func CheckRulesets(rulesets []Ruleset, workflows map[string]Workflow) []string {
	var problems []string
	hasBranch, hasTags := false, false
	for _, ruleset := range rulesets {
		found := ruleset.checkFrame()
		switch ruleset.Target {
		case "branch":
			hasBranch = hasBranch || slices.Contains(ruleset.Conditions.RefName.Include, "~DEFAULT_BRANCH")
			found = append(found, ruleset.checkBranch(pullRequestChecks(workflows))...)
		case "tag":
			hasTags = hasTags || slices.Contains(ruleset.Conditions.RefName.Include, "refs/tags/v*")
			found = append(found, ruleset.lacking("deletion", "non_fast_forward", "update")...)
		default:
			found = append(found, fmt.Sprintf("target is %q; write branch or tag", ruleset.Target))
		}
		for _, problem := range found {
			problems = append(problems, ruleset.file+": "+problem)
		}
	}
	if !hasBranch {
		problems = append(problems, "no ruleset is for the default branch; add one with the target branch that includes ~DEFAULT_BRANCH")
	}
	if !hasTags {
		problems = append(problems, "no ruleset is for the tags of versions; add one with the target tag that includes refs/tags/v*")
	}
	return problems
}

// checkFrame checks the fields that rulesets of branches and tags share.
func (ruleset Ruleset) checkFrame() []string {
	var problems []string
	if ruleset.Enforcement != "active" {
		problems = append(problems, fmt.Sprintf("enforcement is %q; only active rules refuse anything", ruleset.Enforcement))
	}
	if ruleset.BypassActors == nil {
		problems = append(problems, "bypass_actors is missing, and GitHub would keep what it has; write an empty list")
	} else if len(*ruleset.BypassActors) > 0 {
		problems = append(problems, fmt.Sprintf("bypass_actors lists %d that the rules do not bind; empty the list", len(*ruleset.BypassActors)))
	}
	if len(ruleset.Conditions.RefName.Exclude) > 0 {
		problems = append(problems, fmt.Sprintf("conditions exclude %s; empty the list", strings.Join(ruleset.Conditions.RefName.Exclude, ", ")))
	}
	return problems
}

func (ruleset Ruleset) lacking(types ...string) []string {
	var problems []string
	for _, kind := range types {
		if ruleset.rule(kind) == nil {
			problems = append(problems, fmt.Sprintf("the rule %s is missing; add it", kind))
		}
	}
	return problems
}

func (ruleset Ruleset) rule(kind string) *Rule {
	for index := range ruleset.Rules {
		if ruleset.Rules[index].Type == kind {
			return &ruleset.Rules[index]
		}
	}
	return nil
}

func (ruleset Ruleset) checkBranch(checks map[string]check) []string {
	problems := ruleset.lacking("deletion", "non_fast_forward", "required_linear_history", "pull_request", "required_status_checks")
	if rule := ruleset.rule("pull_request"); rule != nil {
		problems = append(problems, checkPullRequest(rule.Parameters)...)
	}
	if rule := ruleset.rule("required_status_checks"); rule != nil {
		problems = append(problems, checkStatuses(rule.Parameters, checks)...)
	}
	return problems
}

func checkPullRequest(parameters json.RawMessage) []string {
	var rule pullRequestRule
	if err := strict(parameters, &rule); err != nil {
		return []string{"pull_request: " + err.Error()}
	}
	var problems []string
	if rule.Approvals < 1 {
		problems = append(problems, fmt.Sprintf("pull_request: required_approving_review_count is %d; set it to 1 or more", rule.Approvals))
	}
	if !rule.DismissesStale {
		problems = append(problems, "pull_request: dismiss_stale_reviews_on_push is false; a review would hold for what is pushed after it")
	}
	if !rule.NeedsLastPush {
		problems = append(problems, "pull_request: require_last_push_approval is false; the author of the last push could approve it")
	}
	if !rule.NeedsResolvedThreads {
		problems = append(problems, "pull_request: required_review_thread_resolution is false; set it to true")
	}
	if len(rule.MergeMethods) == 0 || slices.Contains(rule.MergeMethods, "merge") {
		problems = append(problems, "pull_request: allowed_merge_methods has merge, which a linear history refuses; write squash, rebase or both")
	}
	return problems
}

func checkStatuses(parameters json.RawMessage, checks map[string]check) []string {
	var rule statusChecksRule
	if err := strict(parameters, &rule); err != nil {
		return []string{"required_status_checks: " + err.Error()}
	}
	var problems []string
	if !rule.IsStrict {
		problems = append(problems, "required_status_checks: strict_required_status_checks_policy is false; a branch could be merged that was tested without the newest main")
	}
	if rule.SkipsNewBranch {
		problems = append(problems, "required_status_checks: do_not_enforce_on_create is true; set it to false")
	}
	if len(rule.Checks) == 0 {
		problems = append(problems, "required_status_checks: no check is required; list the jobs of the workflows")
	}
	seen := map[string]bool{}
	for _, required := range rule.Checks {
		found, isJob := checks[required.Context]
		switch {
		case seen[required.Context]:
			problems = append(problems, fmt.Sprintf("required_status_checks: %q is listed twice", required.Context))
		case !isJob:
			problems = append(problems, fmt.Sprintf("required_status_checks: %q is no job that runs on pull requests, so nothing could be merged; the jobs are: %s",
				required.Context, strings.Join(slices.Sorted(maps.Keys(checks)), ", ")))
		case found.obstacle != "":
			problems = append(problems, fmt.Sprintf("required_status_checks: %q: %s", required.Context, found.obstacle))
		}
		if required.App != actionsApp {
			problems = append(problems, fmt.Sprintf("required_status_checks: %q has the integration_id %d; set it to %d (GitHub Actions), or others can report it", required.Context, required.App, actionsApp))
		}
		seen[required.Context] = true
	}
	return problems
}
