package render_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// cleanEnvironment returns the environment without variables that the server would read as configuration.
func cleanEnvironment(more ...string) []string {
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, more...)
}

// binary returns the path of a program in a variable that `make platform` sets.
func binary(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skipf("%s is not set; `make platform` sets it", variable)
	}
	return path
}

// configFiles returns the values of a key of all rendered ConfigMaps, by case.
func configFiles(t *testing.T, key string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, file := range cases(t) {
		for _, object := range rendered(t, file) {
			if files, isFiles := object.(*corev1.ConfigMap); isFiles && files.Data[key] != "" {
				found[file] = files.Data[key]
			}
		}
	}
	return found
}

// The server accepts each configuration, with the environment of its pods.
func TestTheServerTakesTheConfiguration(t *testing.T) {
	server := binary(t, "ROOST_TEST_SERVER")
	folder := t.TempDir()
	for _, key := range []string{"api_key", "token_hmac_secret_key"} {
		if err := os.WriteFile(filepath.Join(folder, key), []byte(strings.Repeat("k", 40)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configurations := configFiles(t, "config.json")
	if len(configurations) < 10 {
		t.Fatalf("%d configurations", len(configurations))
	}
	for file, text := range configurations {
		config := filepath.Join(folder, "config.json")
		// The volume of the pod does not exist here.
		text = strings.ReplaceAll(text, "/var/lib/dunlin", folder)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.Command(server, "check-config", "--config", config)
		command.Env = cleanEnvironment(nodeEnvironment(t, file, folder)...)
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s\n%s", file, err, output, text)
		}
	}
}

// nodeEnvironment returns the environment of the pods, with keys in the folder.
func nodeEnvironment(t *testing.T, file, folder string) []string {
	t.Helper()
	var environment []string
	for _, object := range rendered(t, file) {
		set, isSet := object.(*appsv1.StatefulSet)
		if !isSet || set.Spec.Template.Spec.Containers[0].Name != "dunlin" {
			continue
		}
		for _, variable := range set.Spec.Template.Spec.Containers[0].Env {
			value := strings.ReplaceAll(variable.Value, "$(NATS_PASSWORD)", "secret")
			if variable.ValueFrom != nil {
				value = "shop-0"
			}
			environment = append(environment, variable.Name+"="+strings.ReplaceAll(value, "/run/secrets/dunlin", folder))
		}
	}
	return environment
}

// While the password is changed, the servers accept nodes with the previous password and nodes with the new one, and no other clients.
func TestNATSTakesTwoPasswords(t *testing.T) {
	server := binary(t, "ROOST_TEST_NATS")
	const file = "testdata/cases/dunlin-keys-previous.yaml"
	folder := t.TempDir()
	text := strings.NewReplacer("0.0.0.0:4222", "127.0.0.1:-1", "0.0.0.0:8222", "127.0.0.1:-1", "/data", folder).Replace(configFiles(t, "nats.conf")[file])
	config := filepath.Join(folder, "nats.conf")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(server, "-c", config, "--ports_file_dir", folder)
	command.Env = cleanEnvironment("POD_NAME=shop-nats-0", `NATS_PASSWORD_QUOTED="k4"`, `NATS_PREVIOUS_PASSWORD_QUOTED="k3"`)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	address := portOf(t, folder)
	before := userOf(t, "testdata/cases/dunlin-keys-file.yaml")
	after := userOf(t, file)
	for _, row := range []struct {
		user, password, answer string
	}{
		{before, "k3", "PONG"}, {after, "k4", "PONG"}, {before, "k4", "-ERR 'Authorization Violation'"}, {after, "k3", "-ERR 'Authorization Violation'"},
	} {
		connection, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(connection)
		lines.Scan()
		fmt.Fprintf(connection, "CONNECT {\"user\":%q,\"pass\":%q,\"verbose\":false}\r\nPING\r\n", row.user, row.password)
		if lines.Scan(); lines.Text() != row.answer {
			t.Errorf("%s with %s: %q", row.user, row.password, lines.Text())
		}
		_ = connection.Close()
	}
	if before == after {
		t.Errorf("both are %s", before)
	}
}

// userOf returns the user in the nodes' URL.
func userOf(t *testing.T, file string) string {
	t.Helper()
	for _, variable := range nodeEnvironment(t, file, "") {
		if _, rest, isURL := strings.Cut(variable, "DUNLIN_BROKER_NATS_URL=nats://"); isURL {
			user, _, _ := strings.Cut(rest, ":")
			return user
		}
	}
	t.Fatalf("%s: no URL", file)
	return ""
}

// portOf waits for the file to which the server writes its address.
func portOf(t *testing.T, folder string) string {
	t.Helper()
	deadline, pause := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer pause.Stop()
	for {
		found, _ := filepath.Glob(filepath.Join(folder, "*.ports"))
		if len(found) == 1 {
			var ports struct{ NATS []string }
			text, err := os.ReadFile(found[0])
			if err == nil && json.Unmarshal(text, &ports) == nil && len(ports.NATS) == 1 {
				return strings.TrimPrefix(ports.NATS[0], "nats://")
			}
		}
		select {
		case <-deadline:
			t.Fatal("the server does not start")
		case <-pause.C:
		}
	}
}

func TestNATSTakesTheConfiguration(t *testing.T) {
	server := binary(t, "ROOST_TEST_NATS")
	configurations := configFiles(t, "nats.conf")
	if len(configurations) < 3 {
		t.Fatalf("%d configurations", len(configurations))
	}
	for file, text := range configurations {
		config := filepath.Join(t.TempDir(), "nats.conf")
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		command := exec.Command(server, "-t", "-c", config)
		// A password that is a number without its quotes.
		command.Env = cleanEnvironment("POD_NAME=shop-nats-0", `NATS_PASSWORD_QUOTED="1e5"`, `NATS_PREVIOUS_PASSWORD_QUOTED="2e5"`)
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, output)
		}
	}
}
