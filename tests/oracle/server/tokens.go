package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"hash"
	"strings"
	"time"
)

var (
	errTokenInvalid = errors.New("invalid token")
	errTokenExpired = errors.New("token expired")
)

// claims has the claims of connection tokens and of subscription tokens.
type claims struct {
	Subject   string                 `json:"sub"`
	ExpiresAt *float64               `json:"exp"`
	NotBefore *float64               `json:"nbf"`
	ExpireAt  *int64                 `json:"expire_at"`
	Info      json.RawMessage        `json:"info"`
	B64Info   string                 `json:"b64info"`
	Channel   string                 `json:"channel"`
	Client    string                 `json:"client"`
	Data      json.RawMessage        `json:"data"`
	Channels  []string               `json:"channels"`
	Subs      map[string]claimedSubs `json:"subs"`
}

type claimedSubs struct {
	Info json.RawMessage `json:"info"`
	Data json.RawMessage `json:"data"`
}

// verifyToken checks a JWT signed with HMAC and returns its claims.
func verifyToken(token string, secret string) (*claims, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || secret == "" {
		return nil, errTokenInvalid
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	if decodePart(parts[0], &header) != nil {
		return nil, errTokenInvalid
	}
	algorithm, known := map[string]func() hash.Hash{
		"HS256": sha256.New, "HS384": sha512.New384, "HS512": sha512.New,
	}[header.Algorithm]
	if !known {
		return nil, errTokenInvalid
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return nil, errTokenInvalid
	}
	mac := hmac.New(algorithm, []byte(secret))
	mac.Write([]byte(parts[0] + "." + parts[1]))
	if !hmac.Equal(mac.Sum(nil), signature) {
		return nil, errTokenInvalid
	}
	c := &claims{}
	if decodePart(parts[1], c) != nil {
		return nil, errTokenInvalid
	}
	return c, c.checkTimes(time.Now())
}

func (c *claims) checkTimes(now time.Time) error {
	if c.ExpiresAt != nil && int64(*c.ExpiresAt) <= now.Unix() {
		return errTokenExpired
	}
	if c.NotBefore != nil && int64(*c.NotBefore) > now.Unix() {
		return errTokenExpired
	}
	return nil
}

// sessionExpireAt returns when the session expires, in Unix seconds; 0 means never.
func (c *claims) sessionExpireAt() int64 {
	switch {
	case c.ExpireAt != nil && *c.ExpireAt > 0:
		return *c.ExpireAt
	case c.ExpireAt != nil || c.ExpiresAt == nil:
		return 0
	default:
		return int64(*c.ExpiresAt)
	}
}

func (c *claims) info() ([]byte, error) {
	if c.B64Info != "" {
		return base64.StdEncoding.DecodeString(c.B64Info)
	}
	return c.Info, nil
}

func decodePart(part string, into any) error {
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
