// Package machines contains the playbook that makes machines a k3s cluster.
package machines

import (
	"embed"
	"strings"
)

// Files contains the playbooks, their roles and ansible.cfg.
//
//go:embed ansible.cfg *.yml roles tasks
var Files embed.FS

//go:embed requirements.txt
var requirements string

// AnsibleVersion is the version of ansible-core that the tests run.
func AnsibleVersion() string {
	for line := range strings.Lines(requirements) {
		if version, isAnsible := strings.CutPrefix(line, "ansible-core=="); isAnsible {
			return strings.TrimSpace(version)
		}
	}
	return ""
}
