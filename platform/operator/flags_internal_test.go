package operator

import (
	"flag"
	"testing"
)

func TestTheCommandLineOfTheOperator(t *testing.T) {
	for _, row := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"--namespaces=web,jobs"}, ""},
		{[]string{"--namespaces=web,jobs,web"}, ""},
		{nil, "--namespaces is missing; set it to the namespaces to reconcile, such as web,jobs"},
		{[]string{"--namespaces=web, jobs"}, `--namespaces: " jobs" is not the name of a namespace; use a-z, 0-9 and -`},
		{[]string{"--namespaces=web,"}, "--namespaces: a name is empty; write names such as web,jobs"},
		{[]string{"--namespaces=web", "--lease-seconds=7"}, "--lease-seconds: 7 is less than 8; set it to 8 or more"},
		{[]string{"--namespaces=web", "--ingress-class=My_Class"}, `--ingress-class: "My_Class" is not the name of an IngressClass; use a-z, 0-9, - and .`},
		{[]string{"--namespaces=web", "--https-entry-point=a,b"}, `--https-entry-point: "a,b" is not the name of an entry point of Traefik; use a-z, A-Z, 0-9, - and _`},
		{[]string{"--namespaces=web", "--monitoring-namespace=a.b"}, `--monitoring-namespace: "a.b" is not the name of a namespace; use a-z, 0-9 and -`},
		{[]string{"--namespaces=web", "--backup-image=roost-backup"}, `--backup-image: "roost-backup" has no tag and no digest, which means the tag latest; name a version or a digest`},
	} {
		flags := flag.NewFlagSet("roost-operator", flag.ContinueOnError)
		line := NewCommandLine(flags)
		if err := flags.Parse(row.arguments); err != nil {
			t.Fatal(err)
		}
		text := ""
		options, err := line.Options()
		if err != nil {
			text = err.Error()
		}
		if text != row.want {
			t.Errorf("%v: %s\nexpected: %s", row.arguments, text, row.want)
		}
		if text == "" && (len(options.Namespaces) != 2 || options.IdentityFile != "/etc/roost/identity.txt" || options.LeaseSeconds != LeaseSecondsDefault) {
			t.Errorf("%+v", options)
		}
	}
}
