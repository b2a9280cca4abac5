//go:build !linux

// Package uring is empty on systems other than Linux.
package uring
