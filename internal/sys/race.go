//go:build race

package sys

func init() { Race = true }
