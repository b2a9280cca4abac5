package fileprocbeam_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/apache/beam/sdks/v2/go/pkg/beam"
	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/fileprocbeam"
	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/stretchr/testify/require"
)

// refusedOptions are the options that a pipeline refuses. TestOptionsOfPipelines, in the root module's tests, requires each option
// in one of the two tables.
var refusedOptions = map[string]fileproc.Options{
	"AllTypes":        {AllTypes: true},
	"Roots":           {Roots: []string{"a", "b"}},
	"Files":           {Files: slices.Values([]string{"a"})},
	"Select":          {Select: func(*fileproc.File) bool { return true }},
	"SelectDir":       {SelectDir: func(fileproc.Entry) bool { return true }},
	"OnError":         {OnError: func(err error) error { return err }},
	"Report":          {Report: new(fileproc.Report)},
	"OnProgress":      {OnProgress: func(fileproc.Report) {}},
	"OnSkip":          {OnSkip: func(fileproc.Entry, fileproc.SkipReason) {}},
	"FS":              {FS: fstest.MapFS{}},
	"Ordered":         {Ordered: true},
	"Durable":         {Durable: true},
	"Symlinks":        {Symlinks: fileproc.SymlinksFiles},
	"SymlinksOutside": {SymlinksOutside: true},
}

// keptOptions are all others, with values that make a difference in the tree of TestOptions, or none that a result shows.
var keptOptions = map[string]fileproc.Options{
	"MaxDepth":      {MaxDepth: 1},
	"Suffixes":      {Suffixes: []string{".md"}},
	"Include":       {Include: []string{"a/**"}},
	"IgnoreCase":    {IgnoreCase: true, Suffixes: []string{".MD"}},
	"Exclude":       {Exclude: []string{"a/**"}},
	"IgnoreFiles":   {IgnoreFiles: []string{".ignore"}},
	"GitIgnore":     {GitIgnore: true},
	"GitTracked":    {GitTracked: true},
	"SkipHidden":    {SkipHidden: true},
	"SkipMarked":    {SkipMarked: []string{"CACHEDIR.TAG"}},
	"ReadSize":      {ReadSize: 3},
	"SkipBinary":    {SkipBinary: true},
	"OneFilesystem": {OneFilesystem: true},
	"MaxFileSize":   {MaxFileSize: 5},
	"Download":      {Download: true},
	"SkipLarger":    {SkipLarger: 5},
	"Stat":          {Stat: true},
	"Workers":       {Workers: 1},
	"Shard":         {Shard: 1, Shards: 2},
	"Shards":        {Shards: 2},
	"DisableURing":  {DisableURing: true},
}

// TestOptions: each option that a pipeline takes has the effect that it has on one machine.
func TestOptions(t *testing.T) {
	root := t.TempDir()
	testtree.Make(t, root, "top.md=top", "long.txt=longer than five", "binary=\x00", ".hidden=h", "a/1.md=1", "a/b/2.txt=2", "ignored/3=3",
		".ignore=ignored/", "marked/CACHEDIR.TAG=Signature: 8a477f597d28d172789f06886806bc55", "marked/4=4", ".git/HEAD=ref: refs/heads/main\n", ".git/objects/", ".git/refs/", ".gitignore=a/")
	all := onOneMachine(t, root, fileproc.Options{})
	for name, opts := range keptOptions {
		t.Run(name, func(t *testing.T) {
			var failed []string
			opts.OnError = func(err error) error { failed = append(failed, err.Error()); return nil }
			want := onOneMachine(t, root, opts)
			opts.OnError = nil
			switch name {
			case "OneFilesystem", "Download", "Stat", "Workers", "DisableURing":
				require.Equal(t, all, want)
			default:
				require.NotEqual(t, all, want)
			}
			results, failures, _, err := process(t, sums, root, opts)
			require.NoError(t, err)
			require.Equal(t, want, results)
			require.Len(t, failures, len(failed))
		})
	}
}

// TestOptionsRefused: what cannot travel, or has no meaning, is refused by its name when the pipeline is constructed.
func TestOptionsRefused(t *testing.T) {
	root := t.TempDir()
	_, s := beam.NewPipelineWithRoot()
	for name, opts := range refusedOptions {
		_, _, err := sums.TryProcess(s, root, opts)
		require.ErrorContains(t, err, "Options."+name+" is refused: ")
		require.PanicsWithError(t, err.Error(), func() { sums.Process(s, root, opts) })
	}

	for text, opts := range map[string]fileproc.Options{
		"Options.ReadSize is -7":       {ReadSize: -7},
		"Options.Include has":          {Include: []string{"["}},
		"Options.Shard is 2":           {Shard: 2, Shards: 2},
		"Options.IgnoreFiles has \"\"": {IgnoreFiles: []string{""}},
	} {
		_, _, err := sums.TryProcess(s, root, opts)
		require.ErrorContains(t, err, text, "%+v", opts)
		_, _, err = sums.TryProcess(s, "testbucket://b", opts)
		require.ErrorContains(t, err, text)
	}
}

// TestRoots: a root that no worker could open is refused when the pipeline is constructed.
func TestRoots(t *testing.T) {
	_, s := beam.NewPipelineWithRoot()
	for root, text := range map[string]string{
		"":                        "root is empty",
		"a\x00b":                  "NUL",
		"file://host/dir":         "file URL",
		"file:///dir?x=y":         "file URL",
		"file:///dir?":            "file URL",
		"file://user@/dir":        "file URL",
		"file:///dir/a#b":         "%23",
		"testbucket://b/a#b":      "%23",
		"nodriver://u:secret@b/d": "no driver for nodriver",
		"testbucket://b/../c":     "not a valid path",
		"testbucket://b/a//c":     "not a valid path",
		"testbucket://%zz":        "escape",
	} {
		_, _, err := sums.TryProcess(s, root, fileproc.Options{})
		require.ErrorContains(t, err, text, root)
		require.NotContains(t, err.Error(), "secret")
	}

	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a b"), []byte("1"), 0o666))
	want := onOneMachine(t, root, fileproc.Options{})
	asURL := "file://" + strings.ReplaceAll(strings.TrimPrefix(filepath.ToSlash(root), "/"), " ", "%20")
	asURL = strings.Replace(asURL, "file://", "file:///", 1)
	t.Chdir(filepath.Dir(root))
	for _, root := range []string{asURL, filepath.Base(root), "./" + filepath.Base(root)} {
		results, failures, _, err := process(t, sums, root, fileproc.Options{})
		require.NoError(t, err)
		require.Equal(t, want, results)
		require.Nil(t, failures)
	}
}

func TestRegister(t *testing.T) {
	require.PanicsWithValue(t, `fileprocbeam: Register("late") after beam.Init: workers would not know it`, func() { fileprocbeam.Register("late", sum) })
	require.Contains(t, earlyPanics, `fileprocbeam: Register("sums") twice`)
	require.Contains(t, earlyPanics, `fileprocbeam: Register: the name is "": want UTF-8 that is not empty`)
	require.Contains(t, earlyPanics, `fileprocbeam: Register("nil"): fn is nil`)
}

// earlyPanics are those of wrong calls of Register before beam.Init.
var earlyPanics []string

func init() {
	register := func(name string, fn func(*fileproc.File) (File, error)) {
		defer func() { earlyPanics = append(earlyPanics, fmt.Sprint(recover())) }()
		fileprocbeam.Register(name, fn)
	}
	register("sums", sum)
	register("", sum)
	register("nil", nil)
}
