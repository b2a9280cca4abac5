//go:build !linux

// Package uring is for Linux alone.
package uring
