package tickets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hashDir computes the hash of all files in path order, which is WalkDir's, each as path, NUL, length in decimal, NUL, content.
func hashDir(t *testing.T, root string) (files int, size int64, hash string) {
	t.Helper()
	h := sha256.New()
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		rel, _ := filepath.Rel(root, name)
		fmt.Fprintf(h, "%s\x00%d\x00%s", filepath.ToSlash(rel), len(data), data)
		files++
		size += int64(len(data))
		return err
	}))
	return files, size, hex.EncodeToString(h.Sum(nil))
}

// requireComplete returns the hash of the set.
func requireComplete(t *testing.T, out string, m Manifest) string {
	t.Helper()
	files, size, hash := hashDir(t, filepath.Join(out, m.Name()))
	require.Equal(t, m.Count, files)
	require.Equal(t, m.Bytes, size)
	return hash
}

func TestParseSet(t *testing.T) {
	for count, want := range map[string]string{
		"1": "tickets_flat_1", "999": "tickets_flat_999", "1000": "tickets_flat_1k", "5k": "tickets_flat_5k",
		"100k": "tickets_flat_100k", "1000k": "tickets_flat_1m", "1m": "tickets_flat_1m", "1500": "tickets_flat_1500",
		"64x16KiB": "tickets_flat_64x16KiB", "1000x2048KiB": "tickets_flat_1kx2MiB",
	} {
		s, err := ParseSet("flat", count, 1)
		require.NoError(t, err, count)
		assert.Equal(t, want, s.Name())
	}
	for _, count := range []string{"", "0", "-1", "k", "1.5k", "10m", "10000000", "9999999999999999999", "5K", "5 k", "5x", "5x0KiB", "5x1", "x1KiB", "5x9999MiB", "1x1KiBx1KiB"} {
		_, err := ParseSet("flat", count, 1)
		assert.ErrorContains(t, err, "bad count", count)
	}
	_, err := ParseSet("round", "1", 1)
	assert.ErrorContains(t, err, `unknown layout "round"`)
}

// The hashes are fixed: every machine and every release of Go must make the same set unless Version changes.
func TestGenerate(t *testing.T) {
	for _, c := range []struct {
		layout Layout
		dirs   int
		hash   string
	}{
		{Flat, 0, "6b0b49d333a85b9a851cbb7f1544c9f8bd523bc71e7daf43103a37585c96d582"},
		{Nested1, 36, "8e55192bb94c4746fe0d32a595a03646eefb899f050e2b005f8ddaf6d0fedcc2"},
		{Nested3, 3 + 36 + 300, "f558f92c4f1b2d5b4745c9f626e256b384bb6cb51f659faf77851406edff14bf"},
	} {
		t.Run(string(c.layout), func(t *testing.T) {
			out := t.TempDir()
			m, err := Set{c.layout, 300, 1, 0}.Generate(t.Context(), out)
			require.NoError(t, err)
			assert.Equal(t, c.hash, requireComplete(t, out, m))
			assert.InDelta(t, 400, float64(m.Bytes)/float64(m.Count), 40, "bytes per file")
			dirs := -1
			filepath.WalkDir(filepath.Join(out, m.Name()), func(_ string, d fs.DirEntry, _ error) error {
				if d.IsDir() {
					dirs++
				}
				return nil
			})
			assert.Equal(t, c.dirs, dirs)
		})
	}
}

// A set of larger files has tickets with longer texts.
func TestSizes(t *testing.T) {
	s, err := ParseSet("flat", "3x16KiB", 1)
	require.NoError(t, err)
	out := t.TempDir()
	m, err := s.Generate(t.Context(), out)
	require.NoError(t, err)
	requireComplete(t, out, m)
	assert.EqualValues(t, 3*16<<10, m.Bytes)
	for i := range s.Count {
		data, err := os.ReadFile(filepath.Join(out, s.Name(), s.Path(i)))
		require.NoError(t, err)
		assert.Len(t, data, 16<<10)
		assert.Contains(t, string(data), fmt.Sprintf("id: T-%07d", i+1))
	}
}

func TestSeedChangesContent(t *testing.T) {
	assert.NotEqual(t, Set{Flat, 10, 1, 0}.appendFile(nil, 0), Set{Flat, 10, 2, 0}.appendFile(nil, 0))
}

// An interrupted run leaves no manifest, and the next one completes the set.
func TestResume(t *testing.T) {
	out := t.TempDir()
	s := Set{Nested1, 2000, 1, 0}
	file := func(i int) string { return filepath.Join(out, s.Name(), filepath.FromSlash(s.Path(i))) }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Generate(ctx, out)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.ReadManifest(out)
	require.ErrorIs(t, err, fs.ErrNotExist)

	m, err := s.Generate(t.Context(), out)
	require.NoError(t, err)
	whole := requireComplete(t, out, m)
	require.NoError(t, os.Remove(s.ManifestPath(out)))
	require.NoError(t, os.RemoveAll(filepath.Dir(file(1999))))
	// A kill between create and write leaves an empty file; a crash of the machine may too.
	require.NoError(t, os.Truncate(file(0), 0))
	old := time.Now().Add(-time.Hour).Truncate(time.Second)
	require.NoError(t, os.Chtimes(file(1), old, old))

	m, err = s.Generate(t.Context(), out)
	require.NoError(t, err)
	require.Equal(t, whole, requireComplete(t, out, m))
	info, err := os.Stat(file(1))
	require.NoError(t, err)
	assert.True(t, info.ModTime().Equal(old), "a finished file was written again")
}

func TestFinishedSetIsLeftAlone(t *testing.T) {
	out := t.TempDir()
	s := Set{Flat, 3, 1, 0}
	first, err := s.Generate(t.Context(), out)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(out, s.Name(), s.Path(0))))
	again, err := s.Generate(t.Context(), out)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.NoFileExists(t, filepath.Join(out, s.Name(), s.Path(0)), "a finished set was written again")

	_, err = Set{Flat, 3, 2, 0}.Generate(t.Context(), out)
	assert.ErrorContains(t, err, "has seed 1, version 1; want seed 2")

	require.NoError(t, os.RemoveAll(filepath.Join(out, s.Name())))
	m, err := s.Generate(t.Context(), out)
	require.NoError(t, err)
	requireComplete(t, out, m)

	require.NoError(t, os.WriteFile(s.ManifestPath(out), []byte("{"), 0o644))
	_, err = s.Generate(t.Context(), out)
	assert.ErrorContains(t, err, "is not a manifest")
}

// A ticket has the fields that a YAML library reads from a frontmatter.
type ticket struct {
	ID       string    `yaml:"id"`
	Title    string    `yaml:"title"`
	Status   string    `yaml:"status"`
	Type     string    `yaml:"type"`
	Priority int       `yaml:"priority"`
	Created  time.Time `yaml:"created"`
	Assignee string    `yaml:"assignee"`
	Tags     []string  `yaml:"tags"`
}

// TestTicketsParse: each frontmatter is valid YAML.
func TestTicketsParse(t *testing.T) {
	s := Set{Flat, 500, 1, 0}
	for i := range s.Count {
		front, err := Frontmatter(s.appendFile(nil, i))
		require.NoError(t, err)
		var ticket ticket
		require.NoError(t, yaml.UnmarshalWithOptions(front, &ticket, yaml.Strict()))
		assert.Equal(t, fmt.Sprintf("T-%07d", i+1), ticket.ID)
		assert.NotEmpty(t, ticket.Title)
		assert.Contains(t, statuses, ticket.Status)
		assert.Contains(t, types, ticket.Type)
		assert.Contains(t, assignees, ticket.Assignee)
		assert.Len(t, ticket.Tags, 2)
		assert.True(t, ticket.Priority >= 1 && ticket.Priority <= 5)
		assert.Equal(t, s.day(i), ticket.Created.Truncate(24*time.Hour))
	}
}

func TestFrontmatter(t *testing.T) {
	for in, want := range map[string]string{
		"---\na: 1\n---\nbody":         "a: 1\n",
		"---\na: 1\n---\n---\nb: 2\n":  "a: 1\n",
		"---\na: 1 --- \n--- x\n---\n": "a: 1 --- \n--- x\n",
	} {
		got, err := Frontmatter([]byte(in))
		require.NoError(t, err, in)
		assert.Equal(t, want, string(got))
	}
	for _, in := range []string{"", "a: 1\n", "---\na: 1\n", " ---\na: 1\n---\n", "---\na: 1\n ---\n"} {
		_, err := Frontmatter([]byte(in))
		assert.ErrorIs(t, err, errFrontmatter, in)
	}
}
