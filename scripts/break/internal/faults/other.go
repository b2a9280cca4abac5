//go:build linux && !(amd64 || arm64 || loong64 || riscv64)

package faults

import (
	"context"
	"fmt"
)

// Main says why nothing is run.
func Main(context.Context, []string) error {
	fmt.Println("skipped: faults needs a machine of 64 bits")
	return nil
}
