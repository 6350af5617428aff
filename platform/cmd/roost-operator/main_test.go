package main

import (
	"testing"

	"github.com/dunlin-project/dunlin/platform/operator"
	"github.com/dunlin-project/dunlin/platform/render"
)

func TestWrongNamesAreRefused(t *testing.T) {
	for _, row := range []struct {
		options operator.Options
		want    string
	}{
		{operator.Options{Namespaces: []string{"web", "jobs"}}, ""},
		{operator.Options{Namespaces: []string{"web", " jobs"}}, `--namespaces: " jobs" is not the name of a namespace; use a-z, 0-9 and -`},
		{operator.Options{Namespaces: []string{"web", ""}}, "--namespaces: a name is empty; write names such as web,jobs"},
		{operator.Options{Cluster: render.Cluster{IngressClass: "My_Class"}}, `--ingress-class: "My_Class" is not the name of an IngressClass; use a-z, 0-9, - and .`},
		{operator.Options{Cluster: render.Cluster{MonitoringNamespace: "a.b"}}, `--monitoring-namespace: "a.b" is not the name of a namespace; use a-z, 0-9 and -`},
		{operator.Options{Cluster: render.Cluster{BackupImage: "roost-backup"}}, `--backup-image: "roost-backup" has no tag and no digest, which means the tag latest; name a version or a digest`},
	} {
		text := ""
		if err := checkNames(row.options); err != nil {
			text = err.Error()
		}
		if text != row.want {
			t.Errorf("%+v: %s\nexpected: %s", row.options, text, row.want)
		}
	}
}
