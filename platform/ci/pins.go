package ci

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var pinnedAction = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+@[0-9a-f]{40}$`)

// CheckWorkflows returns the problems of workflows: permissions that are not listed, no timeout, or actions that are not pinned by a commit.
func CheckWorkflows(workflows map[string]Workflow) []string {
	var problems []string
	for _, file := range slices.Sorted(maps.Keys(workflows)) {
		workflow := workflows[file]
		if rights, isMap := workflow.Permissions.(map[string]any); !isMap || len(rights) > 0 {
			problems = append(problems, file+": permissions of the workflow are not {}; give each job its own")
		}
		if workflow.event("pull_request_target") != nil || workflow.event("workflow_run") != nil {
			problems = append(problems, file+": pull_request_target and workflow_run give the rights of main to changes of any contributor; use pull_request")
		}
		if workflow.event("workflow_call") == nil && workflow.Concurrency == nil {
			problems = append(problems, file+": concurrency is missing; set it, or several runs of one branch would run at the same time")
		}
		for _, id := range slices.Sorted(maps.Keys(workflow.Jobs)) {
			for _, problem := range workflow.Jobs[id].problems() {
				problems = append(problems, fmt.Sprintf("%s: job %s: %s", file, id, problem))
			}
		}
	}
	return problems
}

func (job Job) problems() []string {
	var problems []string
	if _, isMap := job.Permissions.(map[string]any); !isMap {
		problems = append(problems, "permissions are missing; list what it needs")
	}
	if job.Uses != "" {
		if !strings.HasPrefix(job.Uses, "./") && !pinnedAction.MatchString(job.Uses) {
			problems = append(problems, fmt.Sprintf("uses %s; pin it by its commit: 40 hexadecimal digits", job.Uses))
		}
		return problems
	}
	if job.TimeoutMinutes == nil {
		problems = append(problems, "timeout-minutes is missing; GitHub's own limit is six hours")
	}
	for _, step := range job.Steps {
		if step.Uses != "" && !pinnedAction.MatchString(step.Uses) {
			problems = append(problems, fmt.Sprintf("uses %s; pin it by its commit: 40 hexadecimal digits", step.Uses))
		}
		if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
			problems = append(problems, "actions/checkout leaves the token in the checkout; set persist-credentials to false")
		}
	}
	return problems
}

// Actions returns the third-party actions and workflows that workflows use, with their commits.
func Actions(workflows map[string]Workflow) []string {
	used := map[string]bool{}
	for _, workflow := range workflows {
		for _, job := range workflow.Jobs {
			if job.Uses != "" && !strings.HasPrefix(job.Uses, "./") {
				used[job.Uses] = true
			}
			for _, step := range job.Steps {
				if step.Uses != "" {
					used[step.Uses] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(used))
}
