//go:build !js && !wasip1

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary run as the program.
func TestMain(m *testing.M) {
	if os.Getenv("SHARDS_MAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func shardsOf(t *testing.T, args ...string) (out, stderr string, err error) {
	t.Setenv("SHARDS_MAIN", "1")
	var o, e strings.Builder
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stdout, cmd.Stderr = &o, &e
	err = cmd.Run()
	return o.String(), e.String(), err
}

func TestResultDoesNotDependOnShards(t *testing.T) {
	for _, shards := range []string{"1", "3", "8"} {
		out, _, err := shardsOf(t, "-shards", shards, "../../testdata/example")
		require.NoError(t, err)
		require.Equal(t, "19\t.md\n", out)
	}
}

// TestFailedFilesDoNotAffectOthers: three files fail; their shards still count all other files.
func TestFailedFilesDoNotAffectOthers(t *testing.T) {
	dir := t.TempDir()
	large := []string{"huge.a", "huge.b", "huge.c"}
	for i := range 40 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.txt", i)), []byte("line\n"), 0o666))
	}
	for _, name := range large {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("line\n"), 2000), 0o666)) // not binary
		require.NoError(t, os.Truncate(path, 257<<20))                                      // above the default of MaxFileSize; sparse
	}
	for shards, failing := range map[string][]string{"1": {"0"}, "5": {"1", "2", "4"}} {
		out, stderr, err := shardsOf(t, "-shards", shards, dir)
		require.Error(t, err)
		require.Equal(t, "40\t.txt\n", out)
		for _, name := range large {
			require.Contains(t, stderr, name+": fileproc: file is larger than Options.MaxFileSize")
		}
		for _, shard := range failing {
			require.Contains(t, stderr, "shard "+shard+" of "+shards+": exit status 1")
		}
	}
}

func TestFailedShardIsReported(t *testing.T) {
	_, stderr, err := shardsOf(t, "-shards", "2", "no such directory")
	require.Error(t, err)
	for _, shard := range []string{"shard 0 of 2: ", "shard 1 of 2: "} {
		require.Contains(t, stderr, shard)
	}
}

// TestAddUp: what shards on several machines have printed adds up to what one machine prints.
func TestAddUp(t *testing.T) {
	var printed strings.Builder
	for _, shard := range []string{"0", "1", "2"} {
		out, _, err := shardsOf(t, "-shards", "3", "-shard", shard, "../../testdata/example")
		require.NoError(t, err)
		printed.WriteString(out)
	}
	total, err := addUp(strings.NewReader(printed.String()))
	require.NoError(t, err)
	require.Equal(t, lines{".md": 19}, total)
	_, err = addUp(strings.NewReader(printed.String() + `{"Shard":`))
	require.EqualError(t, err, "standard input: unexpected EOF")

	whole := slices.Collect(strings.Lines(printed.String()))
	for text, want := range map[string]string{
		"":                                  "shard 0 of 1 is there 0 times: want it once",
		whole[0] + whole[2]:                 "shard 1 of 3 is there 0 times: want it once",
		printed.String() + whole[2]:         "shard 2 of 3 is there 2 times: want it once",
		whole[0] + `{"Shard":1,"Shards":2}`: "standard input: one shard of 3, and one of 2",
		`{"Shard":0,"Shards":1,"Failed":7}`: "shard 0 of 1: files or directories that could not be read: 7",
	} {
		_, err = addUp(strings.NewReader(text))
		require.EqualError(t, err, want)
	}
}
