package proof

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// TestPodsPassTheRestrictedProfile runs the checks of the API server's admission over all golden files.
func TestPodsPassTheRestrictedProfile(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	files, err := filepath.Glob("../render/testdata/golden/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pods := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range bytes.Split(text, []byte("\n---\n")) {
			template := templateOf(t, document)
			if template == nil {
				continue
			}
			pods++
			for _, result := range evaluator.EvaluatePod(restricted, &template.ObjectMeta, &template.Spec) {
				if !result.Allowed {
					t.Errorf("%s: %s: %s", filepath.Base(file), result.ForbiddenReason, result.ForbiddenDetail)
				}
			}
		}
	}
	if pods < 40 {
		t.Errorf("%d pods", pods)
	}
}

// templateOf is the pod of a workload, or nil for another object.
func templateOf(t *testing.T, document []byte) *corev1.PodTemplateSpec {
	t.Helper()
	read := func(into any) {
		if err := yaml.Unmarshal(document, into); err != nil {
			t.Fatal(err)
		}
	}
	var head struct{ Kind string }
	read(&head)
	switch head.Kind {
	case "Deployment", "StatefulSet", "Job":
		var workload appsv1.Deployment
		read(&workload)
		return &workload.Spec.Template
	case "CronJob":
		var cron batchv1.CronJob
		read(&cron)
		return &cron.Spec.JobTemplate.Spec.Template
	}
	return nil
}
