// Package ci checks the rules of a GitHub repository, which are files of the repository, against its workflows, and applies them on GitHub.
package ci

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Workflow contains the fields of a file of .github/workflows that this package checks.
type Workflow struct {
	file string
	// YAML 1.1 parses the key `on` as true.
	On          any            `json:"on"`
	OnAsTrue    any            `json:"true"`
	Permissions any            `json:"permissions"`
	Concurrency any            `json:"concurrency"`
	Jobs        map[string]Job `json:"jobs"`
}

// Job is one of a workflow's jobs.
type Job struct {
	Name            string         `json:"name"`
	Uses            string         `json:"uses"`
	If              any            `json:"if"`
	With            map[string]any `json:"with"`
	Strategy        any            `json:"strategy"`
	ContinueOnError any            `json:"continue-on-error"`
	Permissions     any            `json:"permissions"`
	TimeoutMinutes  any            `json:"timeout-minutes"`
	Env             map[string]any `json:"env"`
	Steps           []Step         `json:"steps"`
}

// Step is one of a job's steps.
type Step struct {
	Uses string         `json:"uses"`
	With map[string]any `json:"with"`
	Run  string         `json:"run"`
	Env  map[string]any `json:"env"`
}

// The workflow of this repository, as others call it, and its jobs that run on pull requests: each if the input of its name is given.
const sharedWorkflow = "dunlin-project/dunlin/.github/workflows/app.yml@"

var sharedJobs = []string{"format", "lint", "test", "build"}

// ReadWorkflows reads all workflows of a folder, by file name.
func ReadWorkflows(folder string) (map[string]Workflow, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.y*ml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no workflow; name the repository's root", folder)
	}
	workflows := map[string]Workflow{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		workflow := Workflow{file: filepath.Base(file)}
		if err := yaml.Unmarshal(text, &workflow); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		workflows[workflow.file] = workflow
	}
	return workflows, nil
}

// event returns the filters of an event that starts the workflow, or nil if the event does not start it.
func (workflow Workflow) event(name string) map[string]any {
	on := workflow.On
	if on == nil {
		on = workflow.OnAsTrue
	}
	switch on := on.(type) {
	case string:
		if on == name {
			return map[string]any{}
		}
	case []any:
		if slices.Contains(on, any(name)) {
			return map[string]any{}
		}
	case map[string]any:
		filters, isThere := on[name]
		if !isThere {
			return nil
		}
		if filters, isMap := filters.(map[string]any); isMap {
			return filters
		}
		return map[string]any{}
	}
	return nil
}

// check is a job that reports a status to GitHub under a name.
type check struct {
	// obstacle is why the check may be missing, or may pass although the job has not run.
	obstacle string
}

// pullRequestChecks returns the checks that report on pull requests, by their names on GitHub.
func pullRequestChecks(workflows map[string]Workflow) map[string]check {
	checks := map[string]check{}
	for _, workflow := range workflows {
		filters := workflow.event("pull_request")
		if filters == nil {
			continue
		}
		obstacle := ""
		for _, filter := range slices.Sorted(maps.Keys(filters)) {
			obstacle = fmt.Sprintf("%s runs for some pull requests only (%s), and the check of the others stays pending", workflow.file, filter)
		}
		for id, job := range workflow.Jobs {
			addChecks(checks, workflows, job, job.label(id), "", obstacle, nil)
		}
	}
	return checks
}

func (job Job) label(id string) string {
	if job.Name != "" {
		return job.Name
	}
	return id
}

// addChecks adds the check of a job, or the checks of the workflow that it calls.
func addChecks(checks map[string]check, workflows map[string]Workflow, job Job, label, prefix, obstacle string, inputs map[string]any) {
	if obstacle == "" {
		obstacle = job.obstacle(inputs)
	}
	called, isLocal := strings.CutPrefix(job.Uses, "./.github/workflows/")
	if job.Uses == "" || prefix != "" {
		checks[prefix+label] = check{obstacle}
		return
	}
	if strings.HasPrefix(job.Uses, sharedWorkflow) {
		for _, name := range sharedJobs {
			addChecks(checks, workflows, Job{If: "inputs." + name + " != ''"}, name, label+" / ", obstacle, job.With)
		}
	}
	if !isLocal {
		return
	}
	for id, inner := range workflows[called].Jobs {
		addChecks(checks, workflows, inner, inner.label(id), label+" / ", obstacle, job.With)
	}
}

var isInputGiven = regexp.MustCompile(`^(?:\$\{\{ *)?inputs\.([a-z-]+) != ''(?: *\}\})?$`)

// obstacle returns why a job may not run. The check of such a job is reported as passed, or not at all.
func (job Job) obstacle(inputs map[string]any) string {
	if job.ContinueOnError != nil {
		return "it has continue-on-error, and passes when it has failed"
	}
	if job.Strategy != nil {
		return "it has a matrix, which changes the name of the check"
	}
	if job.If == nil {
		return ""
	}
	condition := fmt.Sprint(job.If)
	if found := isInputGiven.FindStringSubmatch(condition); found != nil {
		if value, isText := inputs[found[1]].(string); isText && strings.TrimSpace(value) != "" {
			return ""
		}
		return fmt.Sprintf("the caller sets no %q, so it is skipped, and a skipped check counts as passed", found[1])
	}
	return fmt.Sprintf("it has the condition %q, and a skipped check counts as passed", condition)
}
