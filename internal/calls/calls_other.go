//go:build !linux

// Package calls is empty on systems other than Linux.
package calls
