package main

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/dunlin-project/dunlin/platform/apiserver"
)

// users are the users of the API server: a file name, a user and a group.
var users = [][3]string{
	{"admin", "admin", "system:masters"},
	{"controller-manager", "system:kube-controller-manager", ""},
	{"scheduler", "system:kube-scheduler", ""},
	{"proxy", "system:kube-proxy", ""},
	{"kubelet", "system:node:lab", "system:nodes"},
}

// writeUsers writes tokens.csv for the API server, and NAME.kubeconfig for each user.
func writeUsers(folder string) error {
	authority, err := os.ReadFile(filepath.Join(folder, "ca.pem"))
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, user := range users {
		token := rand.Text()
		fmt.Fprintf(&lines, "%s,%s,%s,%q\n", token, user[1], user[0], user[2])
		text, err := apiserver.Kubeconfig(&rest.Config{
			Host: "https://" + nodeAddress + ":6443", BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: authority},
		})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, user[0]+".kubeconfig"), text, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "tokens.csv"), []byte(lines.String()), 0o600)
}
