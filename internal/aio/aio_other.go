//go:build !linux

// Package aio is empty on systems other than Linux.
package aio
