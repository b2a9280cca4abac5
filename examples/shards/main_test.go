//go:build !js && !wasip1

package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test binary stands for the program.
func TestMain(m *testing.M) {
	if os.Getenv("SHARDS_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func shardsOf(t *testing.T, args ...string) (string, error) {
	t.Setenv("SHARDS_MAIN", "1")
	out, err := exec.Command(os.Args[0], args...).Output()
	return string(out), err
}

func TestProcessesGiveWhatOneGives(t *testing.T) {
	for _, shards := range []string{"1", "3", "8"} {
		out, err := shardsOf(t, "-shards", shards, "../../testdata/example")
		require.NoError(t, err)
		require.Equal(t, "19\t.md\n", out)
	}
}

func TestAPartThatFailsIsTold(t *testing.T) {
	_, err := shardsOf(t, "no such directory")
	require.Error(t, err)
}
