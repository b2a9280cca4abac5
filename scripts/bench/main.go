//go:build linux

// Command bench measures. Most of its commands are called by a script in this repository's scripts directory:
//
//	go run ./bench COMMAND [FLAG]...
//
// It exits with 1 if something is slower or takes more than allowed, with 2 if the input is wrong, and with 3 if this machine cannot decide.
package main

import (
	"context"

	"github.com/fileproc/fileproc/scripts/bench/internal/caches"
	"github.com/fileproc/fileproc/scripts/bench/internal/cold"
	"github.com/fileproc/fileproc/scripts/bench/internal/floor"
	"github.com/fileproc/fileproc/scripts/bench/internal/regress"
	"github.com/fileproc/fileproc/scripts/bench/internal/report"
	"github.com/fileproc/fileproc/scripts/bench/internal/scale"
	"github.com/fileproc/fileproc/scripts/internal/commands"
)

func main() {
	commands.Main(2, map[string]func(context.Context, []string) error{
		"floor":   floor.Main,
		"report":  report.Main,
		"caches":  caches.Main,
		"cold":    cold.Main,
		"scale":   scale.Main,
		"compare": regress.Compare, "run": regress.Run,
	})
}
