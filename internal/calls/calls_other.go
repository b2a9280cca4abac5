//go:build !linux

// Package calls is for Linux alone.
package calls
