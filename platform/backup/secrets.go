package backup

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Keys of the encrypted file of a repository that are not passed on unchanged.
const (
	KeyPassword   = "RESTIC_PASSWORD"
	KeyRepository = "RESTIC_REPOSITORY"
)

const (
	reachSeconds     = 10
	redactedBytesMin = 4
)

// secrets of a repository. Restic reads the password from a file. The URL and the credentials of stores are variables of its process.
type secrets struct {
	environment []string
	values      []string
	url         string
}

// readSecrets reads the folder. Each file in it is a variable.
func (repository *Repository) readSecrets() error {
	entries, err := os.ReadDir(repository.Secrets)
	if err != nil {
		return fmt.Errorf("the keys of the repository cannot be read: %w", err)
	}
	read := &secrets{environment: []string{
		"PATH=" + cmp.Or(os.Getenv("PATH"), "/usr/bin:/bin"), "HOME=" + os.TempDir(), "TMPDIR=" + os.TempDir(),
		"RESTIC_PROGRESS_FPS=0.016", "RESTIC_PASSWORD_FILE=" + filepath.Join(repository.Secrets, KeyPassword),
	}, url: repository.URL}
	hasPassword := false
	for _, entry := range entries {
		// A mounted Secret contains folders beside its keys.
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(repository.Secrets, entry.Name()))
		if err != nil {
			return fmt.Errorf("the keys of the repository cannot be read: %w", err)
		}
		value := strings.TrimRight(string(text), "\n")
		if len(value) >= redactedBytesMin {
			read.values = append(read.values, value)
		}
		switch entry.Name() {
		case KeyPassword:
			hasPassword = value != ""
		case KeyRepository:
			read.url = cmp.Or(read.url, value)
		default:
			read.environment = append(read.environment, entry.Name()+"="+value)
		}
	}
	if !hasPassword {
		return permanent("there is no %s; add it to the encrypted file of spec.backup.repository with `roost secrets edit`", KeyPassword)
	}
	if read.url == "" {
		return permanent("the repository has no address; set spec.backup.repository.url, or %s in its encrypted file", KeyRepository)
	}
	if repository.Path != "" {
		read.url = strings.TrimRight(read.url, "/") + "/" + repository.Path
	}
	read.environment = append(read.environment, KeyRepository+"="+read.url)
	passwords, err := passwordsOf(read.url)
	if err != nil {
		return err
	}
	read.values = append(read.values, passwords...)
	// A value may be a substring of another one, so the longest comes first.
	slices.SortFunc(read.values, func(a, b string) int { return len(b) - len(a) })
	repository.secrets = read
	return nil
}

// passwordsOf returns the forms in which the password of a repository's URL may appear in a message: as written, and decoded.
func passwordsOf(address string) ([]string, error) {
	address = withoutScheme(address)
	_, authority, hasScheme := strings.Cut(address, "://")
	if !hasScheme {
		return nil, nil
	}
	parsed, err := url.Parse(address)
	if err != nil {
		// The error of url.Parse contains the URL, and so does the message of restic.
		return nil, permanent("%s", "the URL of the repository cannot be read; write characters such as % and / of its password as %25 and %2F")
	}
	if parsed.User == nil {
		return nil, nil
	}
	password, has := parsed.User.Password()
	if !has {
		return nil, nil
	}
	authority, _, _ = strings.Cut(authority, "/")
	_, written, _ := strings.Cut(authority[:strings.LastIndex(authority, "@")], ":")
	var found []string
	for _, form := range []string{written, password} {
		if len(form) >= redactedBytesMin {
			found = append(found, form)
		}
	}
	return found, nil
}

// redact removes the values of secrets from a text.
func (secrets *secrets) redact(text string) string {
	for _, value := range secrets.values {
		text = strings.ReplaceAll(text, value, "***")
	}
	return text
}

// withoutScheme removes the prefix of rest:https://… and s3:https://…
func withoutScheme(address string) string {
	for _, scheme := range []string{"rest:", "s3:"} {
		address = strings.TrimPrefix(address, scheme)
	}
	return address
}

// Endpoint returns the host and the port of a repository's URL, or "" for a folder. Without a port, it returns the default port of the protocol.
func Endpoint(address string) string {
	host, port := "", ""
	switch scheme, rest, _ := strings.Cut(address, ":"); {
	case scheme == "sftp" && strings.HasPrefix(rest, "//"):
		if parsed, err := url.Parse(address); err == nil {
			host, port = parsed.Hostname(), cmp.Or(parsed.Port(), "22")
		}
	case scheme == "sftp":
		place, _, _ := strings.Cut(rest, ":")
		host, port = place[strings.LastIndex(place, "@")+1:], "22"
	case scheme == "rest" || scheme == "s3":
		if parsed, err := url.Parse(rest); err == nil && parsed.Host != "" {
			standard := "443"
			if parsed.Scheme == "http" {
				standard = "80"
			}
			host, port = parsed.Hostname(), cmp.Or(parsed.Port(), standard)
		} else if scheme == "s3" {
			host, _, _ = strings.Cut(rest, "/")
			port = "443"
		}
	}
	if host == "" {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// reach detects within seconds that a store does not answer. Restic would retry for a quarter of an hour.
func (repository *Repository) reach(ctx context.Context) error {
	endpoint := Endpoint(repository.secrets.url)
	if len(repository.Options) > 0 {
		return nil
	}
	if _, err := exec.LookPath("ssh"); err != nil && strings.HasPrefix(repository.secrets.url, "sftp:") {
		return permanent("restic needs the program ssh for sftp:, and it is not installed; set the repository to rest:, s3: or a claim")
	}
	if endpoint == "" {
		return nil
	}
	dialer := net.Dialer{Timeout: reachSeconds * time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return fmt.Errorf("the store of the repository does not answer: %w; check spec.backup.repository.url, the store, and the network", err)
	}
	return connection.Close()
}
