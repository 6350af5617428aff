package render

import (
	"cmp"
	"regexp"
	"slices"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
	"github.com/dunlin-project/dunlin/platform/settings"
)

// Keys of the Secret of a Dunlin.
const (
	keyAPI          = "api_key"
	keyTokenHMAC    = "token_hmac_secret_key"
	keyNATSPassword = "nats_password"
	// The servers that Roost runs accept keyNATSPrevious until all nodes have the new password.
	keyNATSPrevious = "nats_previous_password"
)

// keysName returns the name of the Secret of the keys. If Roost renders the Secret, the name contains the hash of its content.
func (view *dunlinView) keysName() string {
	if view.spec.Keys.File == "" {
		return view.spec.Keys.Secret
	}
	return view.name + "-keys-" + view.keys.Hash(view.namespace + "/" + view.name)[:10]
}

// natsPasswordName returns the name of the Secret of the password. It is a separate Secret, so that a change of another key does not restart the
// NATS servers.
func (view *dunlinView) natsPasswordName() string {
	if !view.hasOwnNATSPassword() {
		return view.keysName()
	}
	return view.name + "-nats-password-" + settings.Settings{Secret: view.natsPasswordValue()}.Hash(view.namespace + "/" + view.name)[:10]
}

func (view *dunlinView) hasOwnNATSPassword() bool {
	return view.spec.NATS != nil && view.spec.Keys.File != "" && view.keys.Secret[keyNATSPassword] != ""
}

func (view *dunlinView) natsPasswordValue() map[string]string {
	value := map[string]string{keyNATSPassword: view.keys.Secret[keyNATSPassword]}
	if previous := view.keys.Secret[keyNATSPrevious]; previous != "" {
		value[keyNATSPrevious] = previous
	}
	return value
}

// key returns a key of the Secret. It is empty if it is unknown.
func (view *dunlinView) key(name string) string {
	return cmp.Or(view.keys.Secret[name], view.keys.Mounted[name])
}

// natsUser returns a user name that is unique for each password: servers that accept two passwords have two users. It is empty if the password
// is unknown.
func (view *dunlinView) natsUser(name string) string {
	password := view.key(name)
	if password == "" {
		return ""
	}
	return natsUser + "-" + settings.Settings{Secret: map[string]string{keyNATSPassword: password}}.Hash(view.namespace + "/" + view.name)[:10]
}

// mountedHash returns a hash of a Secret that is not made by Roost, so that the pods restart when its content changes. It is empty if the
// content is unknown. Without names, it covers the whole content.
func (view *dunlinView) mountedHash(names ...string) map[string]string {
	content := view.keys.Mounted
	if len(content) == 0 {
		return nil
	}
	if len(names) > 0 {
		content = map[string]string{}
		for _, name := range names {
			content[name] = view.keys.Mounted[name]
		}
	}
	return map[string]string{AnnotationKeys: settings.Settings{Secret: content}.Hash(view.namespace + "/" + view.name)[:10]}
}

// inURL matches passwords that do not need escaping in a URL.
var inURL = regexp.MustCompile(`^[A-Za-z0-9._~-]*$`)

// UnusableKey returns why the nodes cannot use the content of a file of keys, or "". It never contains the value.
func UnusableKey(dunlin *v1alpha1.Dunlin, keys settings.Settings) string {
	wrong := ""
	for _, name := range []string{keyNATSPassword, keyNATSPrevious} {
		if !inURL.MatchString(keys.Secret[name]) {
			wrong = cmp.Or(wrong, name)
		}
	}
	if dunlin.Spec.NATS == nil || wrong == "" {
		return ""
	}
	return wrong + " may contain only letters, digits and . _ ~ -, because it becomes part of a URL; change it"
}

// MissingKeys names the missing keys of a file of keys. A key in plain text counts as missing.
func MissingKeys(dunlin *v1alpha1.Dunlin, keys settings.Settings) []string {
	view := &dunlinView{spec: &dunlin.Spec}
	needed := []string{keyAPI}
	if !view.hasOwnTokenKeys() {
		needed = append(needed, keyTokenHMAC)
	}
	if view.natsServers() > 0 {
		needed = append(needed, keyNATSPassword)
	}
	return slices.DeleteFunc(needed, func(key string) bool { return keys.Secret[key] != "" })
}
