//go:build linux && !(amd64 || arm64 || loong64 || riscv64)

package faults

import (
	"context"
	"fmt"
)

func Main(context.Context, []string) error {
	fmt.Println("skipped: faults needs a machine of 64 bits")
	return nil
}
