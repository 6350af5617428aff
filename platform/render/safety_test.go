package render_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/render"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// templates returns the pod templates of all workloads.
func templates(objects []runtime.Object) []corev1.PodTemplateSpec {
	var found []corev1.PodTemplateSpec
	for _, object := range objects {
		switch object := object.(type) {
		case *appsv1.Deployment:
			found = append(found, object.Spec.Template)
		case *appsv1.StatefulSet:
			found = append(found, object.Spec.Template)
		case *batchv1.Job:
			found = append(found, object.Spec.Template)
		case *batchv1.CronJob:
			found = append(found, object.Spec.JobTemplate.Spec.Template)
		}
	}
	return found
}

// platform/proof checks Pod Security itself. These are the additional checks.
func TestEachPodIsSafe(t *testing.T) {
	pods := 0
	for _, file := range cases(t) {
		for _, template := range templates(rendered(t, file)) {
			pods++
			pod := template.Spec
			name := filepath.Base(file) + ": " + template.Labels[render.LabelPart]
			if *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks || pod.ServiceAccountName == "" {
				t.Errorf("%s: token or service links", name)
			}
			for _, container := range pod.Containers {
				if !*container.SecurityContext.ReadOnlyRootFilesystem {
					t.Errorf("%s: the root is writable", name)
				}
				limits := container.Resources.Limits
				if limits.Cpu().IsZero() || limits.Memory().IsZero() || container.Resources.Requests.Memory().Cmp(*limits.Memory()) != 0 {
					t.Errorf("%s: limits %v", name, container.Resources)
				}
				for _, variable := range container.Env {
					if strings.Contains(strings.ToLower(variable.Name), "key") && !strings.HasSuffix(variable.Name, "_FILE") {
						t.Errorf("%s: %s is a secret in the environment", name, variable.Name)
					}
				}
			}
		}
	}
	if pods < casesMin {
		t.Fatalf("%d pods", pods)
	}
}

func TestEachPodIsUnderANetworkPolicyThatDenies(t *testing.T) {
	for _, file := range cases(t) {
		objects := rendered(t, file)
		for _, template := range templates(objects) {
			covered := false
			for _, object := range objects {
				policy, isPolicy := object.(*networkingv1.NetworkPolicy)
				if !isPolicy {
					continue
				}
				if len(policy.Spec.PolicyTypes) != 2 {
					t.Errorf("%s: the policy leaves a direction open", file)
				}
				for _, rule := range policy.Spec.Ingress {
					if len(rule.From) == 0 || len(rule.Ports) == 0 {
						t.Errorf("%s: a rule lets in everybody, or to all ports", file)
					}
				}
				selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
				if err != nil {
					t.Fatal(err)
				}
				covered = covered || selector.Matches(labels.Set(template.Labels))
			}
			if !covered {
				t.Errorf("%s: no policy selects %v", file, template.Labels)
			}
		}
	}
}

// The longest names that the rules admit do not lead to names that Kubernetes refuses.
func TestNamesFit(t *testing.T) {
	name, part := strings.Repeat("a", 30), v1alpha1.PartName(strings.Repeat("b", 16))
	app := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "web"}, Spec: v1alpha1.AppSpec{
		Image: "shop:1", Health: v1alpha1.Health{ProcessHealth: v1alpha1.ProcessHealth{None: "test"}},
		Processes: []v1alpha1.Process{{Name: part, Command: v1alpha1.Command{"x"}, Health: v1alpha1.ProcessHealth{None: "test"}}},
		Migrate:   &v1alpha1.Migration{Command: v1alpha1.Command{"x"}},
		Cron:      []v1alpha1.CronTask{{Name: part, Schedule: "0 * * * *", Command: v1alpha1.Command{"x"}}},
		Runs:      []v1alpha1.Run{{Name: part, Command: v1alpha1.Command{"x"}}},
	}}
	objects, err := render.App(app, settings.Settings{Secret: map[string]string{"A": "b"}}, render.Cluster{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		limit := 63
		if _, isCron := object.(*batchv1.CronJob); isCron {
			limit = 52
		}
		if found := object.(metav1.Object).GetName(); len(found) > limit {
			t.Errorf("%s has %d characters, more than %d", found, len(found), limit)
		}
	}
}

func TestTheDrainAddsUp(t *testing.T) {
	for seconds := int32(10); seconds <= 3600; seconds++ {
		drain := render.DrainOf(&v1alpha1.DunlinSpec{DrainSeconds: &seconds})
		sum := drain.PreStopSeconds + drain.DelaySeconds + drain.TimeoutSeconds
		isWhole := drain.PreStopSeconds >= 1 && drain.DelaySeconds >= 1 && drain.TimeoutSeconds >= 5
		if sum != int64(seconds) || drain.GraceSeconds <= sum || !isWhole {
			t.Fatalf("%d: %+v", seconds, drain)
		}
	}
}

func TestPodsRestartExactlyWhenTheContentChanges(t *testing.T) {
	app := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "web"}, Spec: v1alpha1.AppSpec{
		Image: "shop:1", Health: v1alpha1.Health{ProcessHealth: v1alpha1.ProcessHealth{None: "test"}},
	}}
	template := func(values settings.Settings) string {
		objects, err := render.App(app, values, render.Cluster{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(templates(objects)[0])
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := template(settings.Settings{Secret: map[string]string{"A": "1"}, Plain: map[string]string{"B": "2"}})
	for name, other := range map[string]settings.Settings{
		"a secret":          {Secret: map[string]string{"A": "x"}, Plain: map[string]string{"B": "2"}},
		"a plain value":     {Secret: map[string]string{"A": "1"}, Plain: map[string]string{"B": "x"}},
		"a key":             {Secret: map[string]string{"C": "1"}, Plain: map[string]string{"B": "2"}},
		"a new key":         {Secret: map[string]string{"A": "1", "C": ""}, Plain: map[string]string{"B": "2"}},
		"secret made plain": {Secret: map[string]string{}, Plain: map[string]string{"A": "1", "B": "2"}},
	} {
		if template(other) == first {
			t.Errorf("%s: no restart", name)
		}
	}
	for range 100 {
		if template(settings.Settings{Secret: map[string]string{"A": "1"}, Plain: map[string]string{"B": "2"}}) != first {
			t.Fatal("a restart without a change")
		}
	}
}

// The API server returns claim templates without a kind in Protobuf. If Roost wrote one, the live and the desired object would always differ.
func TestClaimTemplatesHaveNoKind(t *testing.T) {
	claims := 0
	for _, file := range cases(t) {
		for _, object := range rendered(t, file) {
			set, isSet := object.(*appsv1.StatefulSet)
			if !isSet {
				continue
			}
			for _, claim := range set.Spec.VolumeClaimTemplates {
				claims++
				if claim.TypeMeta != (metav1.TypeMeta{}) {
					t.Errorf("%s: the claim template %s has the kind %q", filepath.Base(file), claim.Name, claim.Kind)
				}
			}
		}
	}
	if claims == 0 {
		t.Error("no case has a claim template")
	}
}
