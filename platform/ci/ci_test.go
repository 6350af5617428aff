package ci

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// copied is a copy of .github, of the repository or of the sample, in which texts are replaced: FILE, OLD, NEW and so on.
func copied(t *testing.T, changes ...string) string {
	t.Helper()
	folder, source := t.TempDir(), root
	if strings.HasPrefix(changes[0], "sample/") {
		source = sample
	}
	must(t, os.CopyFS(filepath.Join(folder, ".github"), os.DirFS(filepath.Join(source, ".github"))))
	for ; len(changes) > 0; changes = changes[3:] {
		path := filepath.Join(folder, ".github", strings.TrimPrefix(changes[0], "sample/"))
		text, err := os.ReadFile(path)
		must(t, err)
		if !strings.Contains(string(text), changes[1]) {
			t.Fatalf("%s has no %q", changes[0], changes[1])
		}
		must(t, os.WriteFile(path, []byte(strings.Replace(string(text), changes[1], changes[2], 1)), 0o644))
	}
	return folder
}

func problemsIn(t *testing.T, folder string) []string {
	t.Helper()
	workflows, err := ReadWorkflows(filepath.Join(folder, ".github/workflows"))
	must(t, err)
	rulesets, err := ReadRulesets(filepath.Join(folder, ".github/rulesets"))
	if err != nil {
		return []string{err.Error()}
	}
	return append(CheckRulesets(rulesets, workflows), CheckWorkflows(workflows)...)
}

func TestTheRepositoryIsInOrder(t *testing.T) {
	if problems := problemsIn(t, root); len(problems) > 0 {
		t.Errorf("%s", strings.Join(problems, "\n"))
	}
}

const sample = "sample"

func TestTheSampleIsInOrder(t *testing.T) {
	if problems := problemsIn(t, sample); len(problems) > 0 {
		t.Errorf("%s", strings.Join(problems, "\n"))
	}
	own, err := ReadWorkflows(filepath.Join(root, ".github/workflows"))
	must(t, err)
	calls, err := ReadWorkflows(filepath.Join(sample, ".github/workflows"))
	must(t, err)
	// It gives only inputs that there are, and the jobs are those that the checker knows.
	call := own["app.yml"].event("workflow_call")
	inputs := call["inputs"].(map[string]any)
	for name := range calls["deploy.yml"].Jobs["shop"].With {
		if inputs[name] == nil {
			t.Errorf("app.yml has no input %q", name)
		}
	}
	for id, job := range own["app.yml"].Jobs {
		isKnown := slices.Contains(sharedJobs, id)
		if condition := fmt.Sprint(job.If); isKnown != (condition == "inputs."+id+" != ''") || isKnown && job.Name != id {
			t.Errorf("the job %s with the condition %q: known as a check: %t", id, condition, isKnown)
		}
	}
}

const (
	mainRules = "rulesets/main.json"
	versions  = "rulesets/versions.json"
	callerYML = "workflows/ci.yml"
	appYML    = "workflows/app.yml"
)

func TestPlantedMistakesAreFound(t *testing.T) {
	const sampleYML, sampleRules = "sample/workflows/deploy.yml", "sample/rulesets/main.json"
	for _, row := range []struct {
		name    string
		changes []string
		message string
	}{
		{"a check that is no job", []string{mainRules, "check / test", "check / tset"}, `"check / tset" is no job that runs on pull requests`},
		{"a job that was renamed", []string{appYML, "name: test\n", "name: tests\n"}, `"check / test" is no job that runs on pull requests`},
		{"a caller that was renamed", []string{callerYML, "name: check\n", "name: checks\n"}, `"check / format" is no job`},
		{"a check without its caller's name", []string{mainRules, "check / lint", "lint"}, `"lint" is no job`},
		{"a check twice", []string{mainRules, "check / lint", "check / test"}, `"check / test" is listed twice`},
		{"no check", []string{mainRules, mainChecks(t), ""}, "no check is required"},
		{"a check of anybody", []string{mainRules, `"check / test", "integration_id": 15368`, `"check / test", "integration_id": 1`}, "has the integration_id 1"},
		{"a workflow that does not run on pull requests", []string{callerYML, "  pull_request:\n", ""}, `"check / test" is no job`},
		{"a workflow for some files", []string{callerYML, "  pull_request:\n", "  pull_request:\n    paths: [crates/**]\n"}, "runs for some pull requests only (paths)"},
		{"a workflow for some branches", []string{callerYML, "  pull_request:\n", "  pull_request:\n    branches: [next]\n"}, "runs for some pull requests only (branches)"},
		{"a caller without a command", []string{callerYML, "      test: make test WITHOUT=lint,workflows\n", ""}, `the caller sets no "test", so it is skipped`},
		{"a caller with an empty command", []string{callerYML, "test: make test WITHOUT=lint,workflows", `test: ""`}, `the caller sets no "test"`},
		{"a job that may be skipped", []string{callerYML, "    name: check\n", "    name: check\n    if: github.actor != 'x'\n"}, "a skipped check counts as passed"},
		{"a job that passes when it fails", []string{appYML, "    name: test\n", "    name: test\n    continue-on-error: true\n"}, "has continue-on-error"},
		{"a job with a matrix", []string{appYML, "    name: test\n", "    name: test\n    strategy: { matrix: { os: [a, b] } }\n"}, "has a matrix"},
		{"no review", []string{mainRules, `count": 1`, `count": 0`}, "required_approving_review_count is 0"},
		{"stale reviews", []string{mainRules, `dismiss_stale_reviews_on_push": true`, `dismiss_stale_reviews_on_push": false`}, "dismiss_stale_reviews_on_push is false"},
		{"one's own push", []string{mainRules, `require_last_push_approval": true`, `require_last_push_approval": false`}, "require_last_push_approval is false"},
		{"open threads", []string{mainRules, `thread_resolution": true`, `thread_resolution": false`}, "required_review_thread_resolution is false"},
		{"merge commits", []string{mainRules, `"squash"`, `"merge"`}, "allowed_merge_methods has merge"},
		{"an old base", []string{mainRules, `checks_policy": true`, `checks_policy": false`}, "strict_required_status_checks_policy is false"},
		{"new branches", []string{mainRules, `enforce_on_create": false`, `enforce_on_create": true`}, "do_not_enforce_on_create is true"},
		{"pushes to main", []string{mainRules, `"type": "pull_request"`, `"type": "required_signatures"`}, "the rule pull_request is missing"},
		{"no checks at all", []string{mainRules, `"type": "required_status_checks"`, `"type": "update"`}, "the rule required_status_checks is missing"},
		{"forced pushes", []string{mainRules, `"non_fast_forward"`, `"creation"`}, "the rule non_fast_forward is missing"},
		{"deletion", []string{mainRules, `"deletion"`, `"creation"`}, "main.json: the rule deletion is missing"},
		{"merges", []string{mainRules, `"required_linear_history"`, `"creation"`}, "the rule required_linear_history is missing"},
		{"a bypass", []string{mainRules, `"bypass_actors": []`, `"bypass_actors": [{"actor_id": 5, "actor_type": "RepositoryRole", "bypass_mode": "always"}]`}, "bypass_actors lists 1"},
		{"a bypass that stays", []string{mainRules, `  "bypass_actors": [],` + "\n", ""}, "bypass_actors is missing"},
		{"rules that only report", []string{mainRules, `"active"`, `"evaluate"`}, `enforcement is "evaluate"`},
		{"an exception", []string{mainRules, `"exclude": []`, `"exclude": ["refs/heads/main"]`}, "conditions exclude refs/heads/main"},
		{"another branch", []string{mainRules, "~DEFAULT_BRANCH", "refs/heads/next"}, "no ruleset is for the default branch"},
		{"a misspelt field", []string{mainRules, `"dismiss_stale_reviews_on_push"`, `"dismiss_stale_review_on_push"`}, `unknown field "dismiss_stale_review_on_push"`},
		{"a misspelt field outside", []string{mainRules, `"enforcement"`, `"enforced"`}, `unknown field "enforced"`},
		{"tags that move", []string{versions, `"update"`, `"creation"`}, "versions.json: the rule update is missing"},
		{"other tags", []string{versions, "refs/tags/v*", "refs/tags/x*"}, "no ruleset is for the tags of versions"},
		{"a target that does not exist", []string{versions, `"tag"`, `"tags"`}, `target is "tags"`},
		{"a tag of an action", []string{appYML, "@de0fac2e4500dabe0009e67214ff5f5447ce83dd", "@v6"}, "uses actions/checkout@v6; pin it by its commit"},
		{"a short commit", []string{appYML, "@de0fac2e4500dabe0009e67214ff5f5447ce83dd", "@de0fac2"}, "pin it by its commit"},
		{"rights of the workflow", []string{appYML, "permissions: {}\n", "permissions: { contents: write }\n"}, "app.yml: permissions of the workflow are not {}"},
		{"all rights", []string{appYML, "permissions: {}\n", "permissions: write-all\n"}, "app.yml: permissions of the workflow are not {}"},
		{"rights that are not listed", []string{callerYML, "    permissions:\n      contents: read\n      packages: write", "    permissions: write-all\n    x:\n      y"}, "job check: permissions are missing"},
		{"no limit of time", []string{appYML, "    timeout-minutes: 60\n", ""}, "job image: timeout-minutes is missing"},
		{"a token in the checkout", []string{appYML, "persist-credentials: false", "persist-credentials: true"}, "leaves the token in the checkout"},
		{"rights for anybody's change", []string{callerYML, "  pull_request:\n", "  pull_request_target:\n"}, "give the rights of main to changes of any contributor"},
		{"a sample without tests", []string{sampleYML, "      test: npm ci && npm test\n", ""}, `"shop / test": the caller sets no "test"`},
		{"a sample that calls another workflow", []string{sampleYML, "workflows/app.yml@", "workflows/other.yml@"}, `"shop / test" is no job`},
		{"a sample with a tag", []string{sampleYML, "@0000000000000000000000000000000000000000", "@main"}, "app.yml@main; pin it by its commit"},
		{"a sample with another check", []string{sampleRules, "shop / test", "shop / unit"}, `"shop / unit" is no job`},
		{"runs side by side", []string{callerYML, "concurrency:\n", "x-concurrency:\n"}, "ci.yml: concurrency is missing"},
	} {
		problems := strings.Join(problemsIn(t, copied(t, row.changes...)), "\n")
		if !strings.Contains(problems, row.message) {
			t.Errorf("%s: %q is not in %q", row.name, row.message, problems)
		}
	}
}

// mainChecks is the text of the list of required checks.
func mainChecks(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".github", mainRules))
	must(t, err)
	_, rest, _ := strings.Cut(string(text), `"required_status_checks": [`)
	list, _, isList := strings.Cut(rest, "]")
	if !isList {
		t.Fatal("main.json has no list of checks")
	}
	return list
}

// Where the commit of each action is known from is written down.
func TestEachActionIsInTheTable(t *testing.T) {
	workflows, err := ReadWorkflows(filepath.Join(root, ".github/workflows"))
	must(t, err)
	page, err := os.ReadFile("../docs/ci.md")
	must(t, err)
	actions := Actions(workflows)
	for _, action := range actions {
		name, commit, _ := strings.Cut(action, "@")
		if !strings.Contains(string(page), "| `"+name+"` | `"+commit+"` |") {
			t.Errorf("docs/ci.md has no row of %s with %s", name, commit)
		}
	}
	if rows := strings.Count(string(page), "\n| `actions/"); rows != len(actions) || rows == 0 {
		t.Errorf("docs/ci.md has %d rows for %d actions", rows, len(actions))
	}
}
