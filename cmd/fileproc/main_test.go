//go:build !plan9 && !wasip1

// The library testscript does not build for the platforms left out.

package main

import (
	"os"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"fileproc":       main,
		"fileproc-begun": func() { barAfter = 0; main() },         // progress is shown at once
		"fileproc-quick": func() { barAfter = time.Hour; main() }, // never
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("TERM", "xterm")
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
