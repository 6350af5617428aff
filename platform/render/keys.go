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
	// keyNATSPrevious is accepted by the servers that Roost runs, until all nodes have the new one.
	keyNATSPrevious = "nats_previous_password"
)

// keysName is the Secret of the keys. One that is made here has the hash of its content in its name.
func (view *dunlinView) keysName() string {
	if view.spec.Keys.File == "" {
		return view.spec.Keys.Secret
	}
	return view.name + "-keys-" + view.keys.Hash(view.namespace + "/" + view.name)[:10]
}

// natsPasswordName is the Secret of the password. It is one of its own, so that another key does not restart the NATS servers.
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

// key of the Secret. Empty where it is not known.
func (view *dunlinView) key(name string) string {
	return cmp.Or(view.keys.Secret[name], view.keys.Mounted[name])
}

// natsUser has one name for each password: servers that accept two of them have two users. It is empty where the password is not known.
func (view *dunlinView) natsUser(name string) string {
	password := view.key(name)
	if password == "" {
		return ""
	}
	return natsUser + "-" + settings.Settings{Secret: map[string]string{keyNATSPassword: password}}.Hash(view.namespace + "/" + view.name)[:10]
}

// mountedHash changes when a Secret that others have made does, so that the pods restart with its new content. It is empty where the content is
// not known. Without names, all of the content counts.
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

// inURL are passwords that a URL keeps as they are.
var inURL = regexp.MustCompile(`^[A-Za-z0-9._~-]*$`)

// UnusableKey is why the nodes could not use what a file of keys has, or empty. It never has the value.
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
	return wrong + " may have letters, digits and . _ ~ - alone, because it becomes a part of a URL; change it"
}

// MissingKeys names what a file of keys lacks. A key that is there in plain text counts as missing.
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
