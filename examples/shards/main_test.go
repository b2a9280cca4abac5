//go:build !js && !wasip1

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
		out, _, err := shardsOf(t, "-shards", shards, "../../tests/testdata/example")
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

// TestAddUp: what shards on several machines have printed adds up to what one machine prints, or an error says what is wrong.
func TestAddUp(t *testing.T) {
	var printed []string
	for _, shard := range []string{"0", "1", "2"} {
		out, _, err := shardsOf(t, "-shards", "3", "-shard", shard, "../../tests/testdata/example")
		require.NoError(t, err)
		printed = append(printed, out)
	}
	add := func(parts ...string) (lines, error) { return addUp(strings.NewReader(strings.Join(parts, ""))) }
	total, err := add(printed...)
	require.NoError(t, err)
	require.Equal(t, lines{".md": 19}, total)
	for want, parts := range map[string][]string{
		"shards that are missing: 1 of 3":          printed[:2],
		"shards that are missing: 0 of 0":          nil,
		"or is there twice":                        {printed[0], printed[1], printed[1], printed[2]},
		"shard 0 of 2 does not belong":             {printed[0], printed[1], `{"shard":0,"shards":2}`, printed[2]},
		"shard 2: files or directories that could": {printed[0], printed[1], `{"shard":2,"shards":3,"failed":1}`},
		"standard input: unexpected EOF":           {printed[0], `{"shard": `},
	} {
		_, err := add(parts...)
		require.ErrorContains(t, err, want)
	}
}
