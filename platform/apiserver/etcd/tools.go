//go:build tools

// Package etcd is a module that compiles the etcd of the tests. The one of Debian 12 is 3.4, which reports no progress of a watch, so the API server
// would answer no watch that begins with a list, as clients of now ask for. `go install` refuses the module of etcd, because it replaces its parts.
package etcd

import _ "go.etcd.io/etcd/server/v3"
