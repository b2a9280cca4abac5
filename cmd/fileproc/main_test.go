//go:build !plan9 && !wasip1

// The library testscript does not build for the excluded platforms.

package main

import (
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fileproc/fileproc/cmd/fileproc/internal/output"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"fileproc":       main,
		"fileproc-begun": func() { output.ProgressDelay = 0; main() },         // progress is shown at once
		"fileproc-quick": func() { output.ProgressDelay = time.Hour; main() }, // never
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("TERM", "xterm")
			for _, v := range []string{"MUTANT", "MUTANT_HITS"} { // of scripts/mutants
				env.Setenv(v, os.Getenv(v))
			}
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "devfull" {
				_, err := os.Stat("/dev/full")
				return err == nil, nil
			}
			return false, nil
		},
	})
}
