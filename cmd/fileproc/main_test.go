package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fileproc": main})
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
