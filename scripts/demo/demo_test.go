package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDownloads: the demo needs no modules other than those of the package.
func TestDownloads(t *testing.T) {
	modules := func(packages ...string) []string {
		args := append([]string{"list", "-deps", "-f", "{{with .Module}}{{if not .Replace}}{{.Path}}{{end}}{{end}}"}, packages...)
		out, err := exec.Command("go", args...).Output()
		require.NoError(t, err)
		return slices.Compact(slices.Sorted(strings.FieldsSeq(string(out))))
	}
	own := "github.com/fileproc/fileproc/scripts"
	require.ElementsMatch(t, append(modules("github.com/fileproc/fileproc"), own), modules(".", "../tickets"))
}
