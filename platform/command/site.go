package command

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/dunlin-project/dunlin/platform/deploy"
	"github.com/dunlin-project/dunlin/platform/validate"
)

const (
	k3sVersion         = "v1.36.3+k3s1"
	certManagerVersion = "v1.21.2"
	githubDownloads    = "https://github.com"
	// siteNamespace is that of deploy/namespace.yaml and of `--namespaces` of the operator.
	siteNamespace = "web"
	siteApp       = "shop"
	// siteUser runs the playbook on the machines, and becomes root with sudo.
	siteUser = "ops"
)

// keysOfUser are public keys that ssh offers by itself, the preferred one first.
var keysOfUser = []string{"id_ed25519.pub", "id_ecdsa.pub", "id_rsa.pub"}

// networksOfK3s are the addresses of pods and of Services.
var networksOfK3s = map[string]netip.Prefix{
	"pods": netip.MustParsePrefix("10.42.0.0/16"), "Services": netip.MustParsePrefix("10.43.0.0/16"),
}

var (
	k3sPattern = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+\+k3s[0-9]+$`)
	keyPattern = regexp.MustCompile(`^(ssh|ecdsa|sk-ssh|sk-ecdsa)-[a-z0-9@.-]+ ([A-Za-z0-9+/]+=*)( .*)?$`)
)

// siteSpec is what a new site is made of: the answers to three questions, and what is seldom another than the default.
type siteSpec struct {
	machines, domain, email                         string
	keyFile, registry, image, k3sVersion, downloads string
}

// siteMachine is a machine with its public and its private address. The first one is the server.
type siteMachine struct {
	name            string
	public, private netip.Addr
}

// flagsOfSite belong to `roost init SITE`, and flagsOfManifest to `roost init FOLDER NAME`. Both take --image.
var (
	flagsOfSite     = []string{"machines", "domain", "email", "ssh-key", "registry", "k3s-version", "downloads"}
	flagsOfManifest = []string{"kind", "namespace", "host"}
)

func (spec *siteSpec) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&spec.machines, "machines", "", "of a site: PUBLIC=PRIVATE of each machine, the server first, with commas between them")
	flags.StringVar(&spec.domain, "domain", "", "of a site: the domain whose names lead to the machines")
	flags.StringVar(&spec.email, "email", "", "of a site: the e-mail address for Let's Encrypt")
	flags.StringVar(&spec.keyFile, "ssh-key", "", "of a site: file with your public SSH key (default the first of ~/.ssh/id_ed25519.pub, id_ecdsa.pub and id_rsa.pub)")
	flags.StringVar(&spec.registry, "registry", deploy.Registry(), "of a site: registry that has the images of Roost")
	flags.StringVar(&spec.k3sVersion, "k3s-version", k3sVersion, "of a site: release of k3s")
	flags.StringVar(&spec.downloads, "downloads", githubDownloads, "of a site: mirror of GitHub for k3s and cert-manager")
}

// question is one that is asked unless its flag is set.
type question struct {
	flag, text string
	answer     *string
	check      func() []validate.Problem
}

func (spec *siteSpec) questions() []question {
	return []question{
		{"machines", "Machines, the server first, each as PUBLIC=PRIVATE, such as 203.0.113.11=10.78.0.11,203.0.113.12=10.78.0.12", &spec.machines,
			func() []validate.Problem { _, problems := spec.parseMachines(); return problems }},
		{"domain", "Domain whose names lead to the machines, such as example.com", &spec.domain, spec.checkDomain},
		{"email", "E-mail address for the certificates of Let's Encrypt, such as ops@example.com", &spec.email, spec.checkEmail},
	}
}

// ask asks for what no flag says. It asks again after a wrong answer.
func (program *program) ask(command *cobra.Command, spec *siteSpec) error {
	answers := bufio.NewReader(program.In)
	for _, question := range spec.questions() {
		for isAnswered := command.Flags().Changed(question.flag); !isAnswered; {
			fmt.Fprintf(program.Err, "%s: ", question.text)
			line, err := answers.ReadString('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if *question.answer = strings.TrimSpace(line); *question.answer == "" && err != nil {
				return usageError{fmt.Errorf("--%s is missing; set it, or answer the question", question.flag)}
			}
			problems := question.check()
			for _, problem := range problems {
				program.note("%s", problem)
			}
			isAnswered = len(problems) == 0
		}
	}
	return nil
}

// problems returns what is wrong with the answers and the other flags.
func (spec *siteSpec) problems() []validate.Problem {
	var found []validate.Problem
	for _, question := range spec.questions() {
		found = append(found, question.check()...)
	}
	if !k3sPattern.MatchString(spec.k3sVersion) {
		found = append(found, validate.Problem{Path: "--k3s-version", Message: fmt.Sprintf("%q is not a release of k3s; write one such as %s", spec.k3sVersion, k3sVersion)})
	}
	base, err := url.Parse(spec.downloads)
	isSafe := err == nil && base.Host != "" && (base.Scheme == "https" || base.Scheme == "http" && base.Hostname() == "127.0.0.1")
	if !isSafe {
		message := fmt.Sprintf("%q is not an address of HTTPS, so the checksums that it gives could be of anybody; write one such as %s", spec.downloads, githubDownloads)
		found = append(found, validate.Problem{Path: "--downloads", Message: message})
	}
	return append(found, spec.imageProblems()...)
}

// imageProblems checks the images as those of an App.
func (spec *siteSpec) imageProblems() []validate.Problem {
	var found []validate.Problem
	for flag, image := range map[string]string{"--registry": spec.operatorImage("roost-operator"), "--image": spec.image} {
		manifest := strings.NewReplacer("NAMESPACE", siteNamespace, "NAME", siteApp, "IMAGE", image, "HOST", "shop.example.com").Replace(appManifest)
		for _, problem := range validate.File([]byte(manifest))[0].Problems {
			found = append(found, validate.Problem{Path: flag, Message: problem.Message})
		}
	}
	slices.SortFunc(found, func(a, b validate.Problem) int { return strings.Compare(a.Path, b.Path) })
	return found
}

// operatorImage returns the full name of one of Roost's images.
func (spec *siteSpec) operatorImage(name string) string {
	return spec.registry + strings.TrimPrefix(deploy.Image(name), deploy.Registry())
}

func (spec *siteSpec) parseMachines() ([]siteMachine, []validate.Problem) {
	var machines []siteMachine
	var problems []validate.Problem
	seen := map[netip.Addr]string{}
	texts := strings.FieldsFunc(spec.machines, func(letter rune) bool { return letter == ',' || letter == ' ' })
	if len(texts) == 0 {
		return nil, []validate.Problem{{Path: "--machines", Message: "there is no machine; write PUBLIC=PRIVATE, such as 203.0.113.11=10.78.0.11"}}
	}
	for index, text := range texts {
		path, name := fmt.Sprintf("--machines[%d]", index), "server1"
		if index > 0 {
			name = fmt.Sprintf("worker%d", index)
		}
		machine, message := parseMachine(name, text)
		for _, address := range []netip.Addr{machine.public, machine.private} {
			if other := seen[address]; message == "" && other != "" {
				message = fmt.Sprintf("%q is an address of %s as well; each machine has its own", address, other)
			}
		}
		if message != "" {
			problems = append(problems, validate.Problem{Path: path, Message: message})
			continue
		}
		seen[machine.public], seen[machine.private] = path, path
		machines = append(machines, machine)
	}
	return machines, problems
}

// parseMachine returns a machine, or what is wrong with its addresses.
func parseMachine(name, text string) (siteMachine, string) {
	first, second, isPair := strings.Cut(text, "=")
	if !isPair {
		return siteMachine{}, fmt.Sprintf("%q has no private address; write PUBLIC=PRIVATE, such as 203.0.113.11=10.78.0.11", text)
	}
	var addresses [2]netip.Addr
	for index, text := range []string{first, second} {
		address, err := netip.ParseAddr(text)
		if err != nil || !address.Is4() {
			return siteMachine{}, fmt.Sprintf("%q is not an IPv4 address; write one such as 203.0.113.11", text)
		}
		addresses[index] = address
	}
	public, private := addresses[0], addresses[1]
	switch {
	case public.IsLoopback() || public.IsUnspecified() || public.IsMulticast() || public.IsLinkLocalUnicast():
		return siteMachine{}, fmt.Sprintf("%q is not the address of a machine; write the one to which SSH connects", public)
	case public == private:
		return siteMachine{}, fmt.Sprintf("%q is both addresses, and the firewall trusts the private network; write the address of another interface", public)
	case !private.IsPrivate():
		return siteMachine{}, fmt.Sprintf("%q is not a private address; write the one on the network between the machines, such as 10.78.0.11", private)
	}
	for what, network := range networksOfK3s {
		if network.Contains(private) {
			return siteMachine{}, fmt.Sprintf("%q is in %s, which k3s gives to %s; use another private network", private, network, what)
		}
	}
	return siteMachine{name, public, private}, ""
}

func (spec *siteSpec) checkDomain() []validate.Problem {
	_, err := netip.ParseAddr(spec.domain)
	isDomain := len(validation.IsDNS1123Subdomain(siteApp+"."+spec.domain)) == 0 && strings.Contains(spec.domain, ".") && err != nil
	if isDomain {
		return nil
	}
	return []validate.Problem{{Path: "--domain", Message: fmt.Sprintf("%q is not a domain; write one such as example.com, in small letters", spec.domain)}}
}

func (spec *siteSpec) checkEmail() []validate.Problem {
	address, err := mail.ParseAddress(spec.email)
	if err == nil && address.Address == spec.email && strings.Contains(spec.email[strings.LastIndex(spec.email, "@"):], ".") {
		return nil
	}
	return []validate.Problem{{Path: "--email", Message: fmt.Sprintf("%q is not an e-mail address; write one such as ops@example.com", spec.email)}}
}

// publicKey reads the key with which the user logs in to the machines.
func (program *program) publicKey(spec *siteSpec) (string, error) {
	paths := []string{spec.keyFile}
	if spec.keyFile == "" {
		paths = nil
		for _, name := range keysOfUser {
			paths = append(paths, filepath.Join(program.Variable("HOME"), ".ssh", name))
		}
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) && spec.keyFile == "" {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("--ssh-key: %w", err)
		}
		key := strings.TrimSpace(string(text))
		parts := keyPattern.FindStringSubmatch(key)
		if parts == nil {
			// The content may be a private key.
			return "", fmt.Errorf("--ssh-key: %s is not a file with one public key; name one such as ~/.ssh/id_ed25519.pub", path)
		}
		if _, err := base64.StdEncoding.DecodeString(parts[2]); err != nil {
			return "", fmt.Errorf("--ssh-key: the key in %s is damaged: %w; make another one with `ssh-keygen -t ed25519`", path, err)
		}
		return key, nil
	}
	return "", fmt.Errorf("--ssh-key: there is none of %s; make one with `ssh-keygen -t ed25519`, and give the machines its public key", strings.Join(paths, ", "))
}
