// Package coredump prevents programs that decrypt secrets from writing their memory to a disk when they crash.
package coredump
