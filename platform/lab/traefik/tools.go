//go:build tools

// Package traefik is a module that compiles Traefik. `go install` refuses to, because the module of Traefik replaces modules.
package traefik

import _ "github.com/traefik/traefik/v3/cmd/traefik"
