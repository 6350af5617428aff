package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// script is a sequence of steps against a server, as data: see README.md beside it.
type script struct {
	About      string                `json:"about"`
	Encodings  []string              `json:"encodings"`
	ManualPong bool                  `json:"manual_pong"`
	Unordered  bool                  `json:"unordered"`
	Tokens     map[string]tokenShape `json:"tokens"`
	Steps      []step                `json:"steps"`

	name string
}

// tokenShape describes a JWT; exp_in and nbf_in are seconds from the play's start.
type tokenShape struct {
	Claims json.RawMessage `json:"claims"`
	ExpIn  *int64          `json:"exp_in"`
	NbfIn  *int64          `json:"nbf_in"`
	Secret string          `json:"secret"`
}

// step is one action; exactly one of Connect, Send, Pong, Expect, Barrier,
// Drop and API is set.
type step struct {
	Connect  string            `json:"connect"`
	Origin   string            `json:"origin"`
	Send     string            `json:"send"`
	Commands []json.RawMessage `json:"commands"`
	JSON     *string           `json:"json"`     // a frame's text, sent as it is
	Protobuf *string           `json:"protobuf"` // a frame's bytes in hexadecimal, sent as they are
	Pong     string            `json:"pong"`
	Expect   string            `json:"expect"`
	Messages int               `json:"messages"`
	Pings    int               `json:"pings"`
	Close    bool              `json:"close"`
	Barrier  string            `json:"barrier"`
	Drop     string            `json:"drop"`
	API      string            `json:"api"`
	Body     json.RawMessage   `json:"body"`
	ExpireIn *int64            `json:"expire_in"` // seconds from now, as `expire_at` of the body
	Times    int               `json:"times"`
	Save     string            `json:"save"`

	appended *appendedField
}

func loadScripts(folder string) ([]*script, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	scripts := make([]*script, 0, len(paths))
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		decoder := json.NewDecoder(strings.NewReader(string(raw)))
		decoder.DisallowUnknownFields()
		s := &script{name: strings.TrimSuffix(filepath.Base(path), ".json")}
		if err := decoder.Decode(s); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if s.About == "" || len(s.Steps) == 0 {
			return nil, fmt.Errorf("%s: needs about and steps", path)
		}
		scripts = append(scripts, s)
	}
	if len(scripts) == 0 {
		return nil, fmt.Errorf("no scripts in %s", folder)
	}
	return scripts, nil
}

func (s *script) isFor(encoding string) bool {
	if len(s.Encodings) == 0 {
		return true
	}
	for _, named := range s.Encodings {
		if named == encoding {
			return true
		}
	}
	return false
}

// names has the values of the {…} placeholders of a script during one play.
type names struct {
	values map[string]string
}

var placeholder = regexp.MustCompile(`\{(u|client:[a-z]|token:[a-z_]+|epoch:[a-z_]+)\}`)

// fill replaces {u}, {client:a}, {token:name} and {epoch:name}.
func (n *names) fill(text string) (string, error) {
	var missing error
	filled := placeholder.ReplaceAllStringFunc(text, func(found string) string {
		value, known := n.values[found[1:len(found)-1]]
		if !known {
			missing = fmt.Errorf("nothing is known as %s yet", found)
		}
		return value
	})
	return filled, missing
}

// sign creates the JWTs of a script.
func (s *script) sign(n *names, secret string) error {
	for name, shape := range s.Tokens {
		filled, err := n.fill(string(shape.Claims))
		if err != nil {
			return err
		}
		claims := map[string]any{}
		if err := json.Unmarshal([]byte(filled), &claims); err != nil {
			return fmt.Errorf("token %s: %w", name, err)
		}
		now := time.Now().Unix()
		if shape.ExpIn != nil {
			claims["exp"] = now + *shape.ExpIn
		}
		if shape.NbfIn != nil {
			claims["nbf"] = now + *shape.NbfIn
		}
		key := secret
		if shape.Secret != "" {
			key = shape.Secret
		}
		payload, err := json.Marshal(claims)
		if err != nil {
			return err
		}
		text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) +
			"." + base64.RawURLEncoding.EncodeToString(payload)
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(text))
		n.values["token:"+name] = text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	return nil
}

var offset = regexp.MustCompile(`"offset":\s*[1-9]`)

// hasOffsets returns whether commands contain offsets, which are those of a server whose offsets have no gaps.
func (s *script) hasOffsets() bool {
	for _, step := range s.Steps {
		for _, command := range append(step.Commands, step.Body) {
			if offset.Match(command) {
				return true
			}
		}
	}
	return false
}
