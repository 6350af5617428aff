package render

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dunlin-project/dunlin/platform/api/v1alpha1"
)

// DerivedKeys of the server's configuration are set by Roost. A spec must contain neither these keys nor any keys below them.
var DerivedKeys = []string{
	"http_server.address", "http_server.port", "http_server.internal_address", "http_server.internal_port",
	"http_server.trusted_proxies", "http_server.tls", "health", "prometheus", "shutdown", "broker", "storage.path",
	"net.memory_limit", "node.name",
}

// SecretKeys of the server's configuration belong in the Secret of spec.keys, because many users can read a ConfigMap.
var SecretKeys = []string{
	"http_api.key", "http_api.previous_key", "client.token.hmac_secret_key", "client.token.hmac_previous_secret_key",
	"client.subscription_token.hmac_secret_key", "client.subscription_token.hmac_previous_secret_key",
}

// tokenKeys verify tokens without a shared secret.
var tokenKeys = []string{"client.token.rsa_public_key", "client.token.ecdsa_public_key", "client.token.jwks_public_endpoint"}

// ConfigOf reads spec.config, which must have been validated as an object.
func ConfigOf(spec *v1alpha1.DunlinSpec) (map[string]any, error) {
	config := map[string]any{}
	if spec.Config == nil || len(spec.Config.Raw) == 0 {
		return config, nil
	}
	if err := json.Unmarshal(spec.Config.Raw, &config); err != nil {
		return nil, fmt.Errorf("spec.config is not an object: %w", err)
	}
	return config, nil
}

// HasConfigKey reports whether a configuration contains the key with that path, or any key below it.
func HasConfigKey(config map[string]any, path string) bool {
	name, rest, isDeeper := strings.Cut(path, ".")
	value, isThere := config[name]
	if !isThere || !isDeeper {
		return isThere
	}
	table, isTable := value.(map[string]any)
	return isTable && HasConfigKey(table, rest)
}

func (view *dunlinView) hasOwnTokenKeys() bool {
	config, _ := ConfigOf(view.spec)
	for _, key := range tokenKeys {
		if HasConfigKey(config, key) {
			return true
		}
	}
	return false
}

// serverConfig returns the content of config.json.
func (view *dunlinView) serverConfig() (string, error) {
	config, err := ConfigOf(view.spec)
	if err != nil {
		return "", err
	}
	set := func(path string, value any) { setConfigKey(config, path, value) }
	set("http_server.port", publicPort)
	set("http_server.internal_port", InternalPort)
	if len(view.spec.TrustedProxies) > 0 {
		set("http_server.trusted_proxies", view.spec.TrustedProxies)
	}
	set("health.enabled", true)
	set("prometheus.enabled", true)
	set("shutdown.delay", fmt.Sprintf("%ds", view.drain.DelaySeconds))
	set("shutdown.timeout", fmt.Sprintf("%ds", view.drain.TimeoutSeconds))
	if rate := view.spec.ReconnectsPerSecond; rate != nil {
		set("shutdown.sessions_per_second", *rate)
	}
	// Above this limit, the node refuses new sessions, which go to other nodes before Kubernetes kills this one.
	set("net.memory_limit", view.resources().Memory.Value()/5*4)
	if view.spec.NATS != nil {
		set("broker.enabled", true)
		set("broker.type", "nats")
		set("broker.nats.prefix", view.natsPrefix())
		if servers := view.natsServers(); servers > 0 {
			set("broker.nats.jetstream.replicas", min(servers, 3))
		}
	}
	if view.spec.Storage != nil {
		set("storage.path", storageFolder+"/storage")
		if view.spec.Backup != nil {
			// Each backup copies only the files that are missing in the previous one.
			set("storage.backup.path", storageFolder+"/"+backupsFolder)
			set("storage.backup.interval", "1h")
			set("storage.backup.keep", 3)
		}
	}
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encoding the server's configuration: %w", err)
	}
	return string(text) + "\n", nil
}

// setConfigKey creates missing tables on the path.
func setConfigKey(config map[string]any, path string, value any) {
	name, rest, isDeeper := strings.Cut(path, ".")
	if !isDeeper {
		config[name] = value
		return
	}
	table, isTable := config[name].(map[string]any)
	if !isTable {
		table = map[string]any{}
		config[name] = table
	}
	setConfigKey(table, rest, value)
}
