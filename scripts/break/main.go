//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Command break tries to make fileproc lose, tear or leak something. Most of its commands are parts of scripts/reliability.sh or of
// scripts/filesystems.sh:
//
//	go run ./break COMMAND [FLAG]...
//
// Each command has the flag -h. It exits with 1 after a loss, unless the command uses another status.
package main

import (
	"context"

	"github.com/fileproc/fileproc/scripts/break/internal/churn"
	"github.com/fileproc/fileproc/scripts/break/internal/faults"
	"github.com/fileproc/fileproc/scripts/internal/commands"
)

func main() {
	commands.Main(1, map[string]func(context.Context, []string) error{
		"churn":  churn.Main,
		"tree":   churn.Tree,
		"faults": faults.Main,
	})
}
