package pipe_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/pipe"
	"github.com/stretchr/testify/require"
)

// length is what most of these batch programs do.
func length(f *fileproc.File) (int, error) {
	switch string(f.Data()) {
	case "bad":
		return 0, errors.New("it is bad")
	case "skip":
		return 0, fmt.Errorf("not this one: %w", fileproc.ErrSkip)
	case "end":
		return 0, fs.SkipAll
	}
	return len(f.Data()), nil
}

// makeTree returns a directory with these files. A path that ends with a slash is an empty directory.
func makeTree(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o777))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
	}
	return dir
}

// answersOf runs a batch, which must succeed, and returns what it answers for each path.
func answersOf(t *testing.T, root, names string, opts fileproc.Options) map[string][]string {
	t.Helper()
	var out wholeLines
	require.NoError(t, pipe.Run(t.Context(), root, strings.NewReader(names), &out, opts, length))
	require.False(t, out.broken, "a Write was not whole lines")
	return parse(t, out.b.Bytes())
}

// parse returns the rest of each line by its path.
func parse(t *testing.T, out []byte) map[string][]string {
	t.Helper()
	answers := map[string][]string{}
	for line := range bytes.Lines(out) {
		var v struct {
			Path    any
			Result  any
			Error   *string
			Skipped bool
		}
		require.NoError(t, json.Unmarshal(line, &v), "%q", line)
		name, ok := v.Path.(string)
		if !ok {
			b, err := base64.StdEncoding.DecodeString(v.Path.(map[string]any)["bytes"].(string))
			require.NoError(t, err)
			name = string(b)
		}
		var what string
		switch {
		case v.Error != nil:
			what = "error: " + *v.Error
		case v.Skipped:
			what = "skipped"
		default:
			what = fmt.Sprint("result: ", v.Result)
		}
		answers[name] = append(answers[name], what)
	}
	return answers
}

// wholeLines notes whether every Write ends with a newline.
type wholeLines struct {
	b      bytes.Buffer
	writes int
	broken bool
}

func (w *wholeLines) Write(p []byte) (int, error) {
	w.writes++
	w.broken = w.broken || !bytes.HasSuffix(p, []byte("\n"))
	return w.b.Write(p)
}

// TestEveryNameIsAnsweredOnce, whatever it leads to, in the plain and in the ordered mode, on disk and from an FS.
func TestEveryNameIsAnsweredOnce(t *testing.T) {
	files := map[string]string{
		"a.txt": "four", "d/b.txt": "fives", "d/e/c.txt": "", "bad.txt": "bad", "skip.txt": "skip", "end.txt": "end",
		"binary.txt": "a\x00b", "large.txt": strings.Repeat("x", 100), "no.md": "", ".hidden.txt": "x", "out/x.txt": "x",
		"unselected.txt": "",
	}
	fsys := fstest.MapFS{}
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	names := `a.txt
d/b.txt

d/e/c.txt
a.txt
"bad.txt"
{"bytes":"c2tpcC50eHQ="}
end.txt
binary.txt
large.txt
no.md
no.md
.hidden.txt
out/x.txt
unselected.txt
not/there.txt
d
d/
../a.txt
/a.txt
./a.txt
././no.md
./not/there.txt
./../a.txt
./a.txt/
d//b.txt
.
"nul\u0000.txt"
"not json
{"bytes":1}
"\ud800.txt"
a.txt`
	const notFile = "error: not the path of a file below root: invalid argument"
	want := map[string][]string{
		"a.txt":           {"result: 4", "result: 4", "result: 4"},
		"d/b.txt":         {"result: 5"},
		"d/e/c.txt":       {"result: 0"},
		"bad.txt":         {"error: process: it is bad"},
		"skip.txt":        {"skipped"},
		"end.txt":         {"error: process: a batch cannot be ended early: skip everything and stop the walk"},
		"binary.txt":      {"skipped"},
		"large.txt":       {"error: read: fileproc: file is larger than Options.MaxFileSize"},
		"no.md":           {"skipped", "skipped"},
		".hidden.txt":     {"skipped"},
		"out/x.txt":       {"skipped"},
		"unselected.txt":  {"skipped"},
		"d/":              {notFile},
		"../a.txt":        {notFile},
		"/a.txt":          {notFile},
		"./../a.txt":      {notFile},
		"./a.txt/":        {notFile},
		"./a.txt":         {"result: 4"},
		"././no.md":       {"skipped"},
		"./not/there.txt": {"error: "},
		"d//b.txt":        {notFile},
		".":               {notFile},
		"nul\x00.txt":     {notFile},
		`"not json`:       {"error: a line that begins with a quote must be a JSON string: unexpected end of JSON input"},
		`"\ud800.txt"`:    {"error: a line that begins with a quote must be a JSON string: not UTF-8"},
		`{"bytes":1}`:     {`error: a line that begins with {"bytes": must be a JSON object: `},
		"not/there.txt":   {"error: "},
		"d":               {""}, // skipped by its suffix
	}
	for _, in := range []string{"directory", "fs"} {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/ordered=%v", in, ordered), func(t *testing.T) {
				opts := fileproc.Options{
					Suffixes: []string{".txt", "\\.txt\"", "json", "}"}, Exclude: []string{"out"}, SkipHidden: true, SkipBinary: true, MaxFileSize: 99,
					Select:  func(f *fileproc.File) bool { return f.Name() != "unselected.txt" },
					Ordered: ordered,
				}
				root := "."
				if in == "fs" {
					opts.FS = fsys
				} else {
					root = makeTree(t, files)
				}
				got := answersOf(t, root, names, opts)
				if in == "directory" {
					absolute := filepath.ToSlash(root) + "/d/e/c.txt"
					require.Equal(t, map[string][]string{absolute: {"result: 0"}}, answersOf(t, root, absolute, opts))
				}
				for name, all := range want {
					require.Len(t, got[name], len(all), name)
					for i, answer := range all {
						require.True(t, strings.HasPrefix(got[name][i], answer), "%q: %q, want %q", name, got[name][i], answer)
					}
				}
				require.Len(t, got, len(want))
			})
		}
	}
}

// TestOrderedAnswers come in the order of the names.
func TestOrderedAnswers(t *testing.T) {
	files, want := map[string]string{}, []string{}
	for i := range 300 {
		name := fmt.Sprintf("d%d/%03d", i%7, i*7919%300)
		files[name] = name
		want = append(want, name)
	}
	var out bytes.Buffer
	names := strings.Join(want, "\n")
	require.NoError(t, pipe.Run(t.Context(), makeTree(t, files), strings.NewReader(names), &out, fileproc.Options{Ordered: true}, length))
	var got []string
	for line := range strings.Lines(out.String()) {
		name, _, _ := strings.Cut(strings.TrimPrefix(line, `{"path":"`), `"`)
		got = append(got, name)
	}
	require.Equal(t, want, got)
}

// TestNamesInTheRoot: the failure of a file is known for one however root is written.
func TestNamesInTheRoot(t *testing.T) {
	dir := makeTree(t, map[string]string{"r/a": "bad", "r/d/": ""})
	t.Chdir(dir)
	for _, root := range []string{"r", "r/", "./r", ".//r//", "r/../r", "r/d/..", "r/d/../", dir + "/r/../r", filepath.Join(dir, "r")} {
		got := answersOf(t, root, "a\nd\nd/x\nnot", fileproc.Options{})
		require.Len(t, got, 4, root)
		require.Equal(t, []string{"error: process: it is bad"}, got["a"], root)
	}
	for _, root := range []string{"r", "."} {
		opts := fileproc.Options{FS: fstest.MapFS{"r/a": {Data: []byte("bad")}, "a": {Data: []byte("bad")}}}
		require.Len(t, answersOf(t, root, "a\nnot\nnot/x", opts), 3, root)
	}
}

// hostile are names that are hard to hand over. The file system may not allow all.
var hostile = []string{
	"new\nline", "return\r", `"`, `"quoted"`, ` leading`, "trailing ", "tab\t", `back\slash`, `\u0041`, `\ud800`, `{"bytes":"eA=="}`, "{", "<&>",
	"\u2028\u0085", "\x7f\x01", "é", "😀", "\xff\xfe", "a\xc3", "-0", "-", "\ufffd", `\\ud800`, "$(x) `x`", "*", "line\n", "\n",
}

// TestListedNamesAreAnswered: the answer to a line of List has that line as its path, byte for byte. With -0 a name is what it is.
func TestListedNamesAreAnswered(t *testing.T) {
	dir, made := t.TempDir(), 0
	for _, name := range hostile {
		for _, path := range []string{name, filepath.Join(name+".d", name)} {
			path = filepath.Join(dir, path)
			if os.MkdirAll(filepath.Dir(path), 0o777) == nil && os.WriteFile(path, []byte("four"), 0o666) == nil {
				made++
			}
		}
	}
	opts := fileproc.Options{SkipHidden: true, IgnoreFiles: []string{".none"}, MaxDepth: 9, SkipMarked: []string{".none"}, OneFilesystem: true}
	var list, out bytes.Buffer
	require.NoError(t, pipe.List(t.Context(), dir, &list, opts))
	names := strings.Split(strings.TrimSuffix(list.String(), "\n"), "\n")
	if runtime.GOOS == "linux" {
		require.Equal(t, 2*len(hostile), made)
	}
	require.GreaterOrEqual(t, len(names), 8) // a system may store a name in another form, or drop a blank at its end
	require.NoError(t, pipe.Run(t.Context(), dir, bytes.NewReader(list.Bytes()), &out, opts, length))
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.TrimSuffix(strings.TrimPrefix(line, `{"path":`), ",\"result\":4}\n"))
	}
	slices.Sort(names)
	slices.Sort(got)
	require.Equal(t, names, got)
}

// TestNameIsReadAsWritten: a line is decoded to the name that it was made from.
func TestNameIsReadAsWritten(t *testing.T) {
	for _, name := range hostile {
		fsys := fstest.MapFS{"x": {Data: []byte("x")}}
		line := pipe.AppendName(nil, name)
		require.NotContains(t, string(line), "\n")
		var out bytes.Buffer
		require.NoError(t, pipe.Run(t.Context(), ".", bytes.NewReader(line), &out, fileproc.Options{FS: fsys}, length))
		require.Len(t, parse(t, out.Bytes())[name], 1, "%q", name)
	}
	for line, name := range map[string]string{
		`"\ud83d\ude00"`: "😀", `"\u00e9\\ud800"`: `é\ud800`, `"\ufffd"`: "\ufffd", " raw": " raw", `raw "x"`: `raw "x"`, `{x}`: `{x}`,
		"\xff": "\xff", "\"\xff\"": "\"\xff\"", `"\ude00\ud83d"`: `"\ude00\ud83d"`, `"\uD83Dx"`: `"\uD83Dx"`, `"a"b`: `"a"b`, `{"bytes":null}`: `{"bytes":null}`,
	} {
		var out bytes.Buffer
		require.NoError(t, pipe.Run(t.Context(), ".", strings.NewReader(line), &out, fileproc.Options{FS: fstest.MapFS{}}, length))
		got := parse(t, out.Bytes())
		require.Len(t, got, 1)
		require.Len(t, got[name], 1, "%q: %q", line, got)
	}
}

// TestResults are JSON in one line, and one that is none is a failure of its file.
func TestResults(t *testing.T) {
	fsys := fstest.MapFS{"a": {Data: []byte("<\n>")}, "b": {Data: []byte("b")}, "c": {Data: []byte("\"\xff\"")}, "d": {Data: []byte("\xff")}}
	var out bytes.Buffer
	require.NoError(t, pipe.Run(t.Context(), ".", strings.NewReader("a\nb\nc\nd"), &out, fileproc.Options{FS: fsys, Ordered: true}, func(f *fileproc.File) (any, error) {
		if f.Name() == "b" {
			return func() {}, nil
		}
		if f.Name() == "c" { // a reader that wants UTF-8 would refuse the whole batch
			return json.RawMessage(f.Data()), nil
		}
		if f.Name() == "d" {
			return string(f.Data()), nil
		}
		return map[string]any{"s": string(f.Data()), "raw": json.RawMessage("{\n}"), "none": nil}, nil
	}))
	require.Equal(t, `{"path":"a","result":{"none":null,"raw":{},"s":"<\n>"}}
{"path":"b","error":"process: json: unsupported type: func()"}
{"path":"c","error":"process: the JSON of the result is not UTF-8"}
{"path":"d","result":"\ufffd"}
`, out.String())
}

// TestOnErrorEndsTheBatch, unless it returns nil.
func TestOnErrorEndsTheBatch(t *testing.T) {
	fsys := fstest.MapFS{"bad": {Data: []byte("bad")}}
	var seen []error
	opts := fileproc.Options{FS: fsys, OnError: func(err error) error {
		seen = append(seen, err)
		return nil
	}}
	require.Len(t, answersOf(t, ".", "bad\nnot", opts), 2)
	require.Len(t, seen, 2)

	later := errors.New("try again later")
	opts.OnError = func(error) error { return later }
	in, w := io.Pipe() // stays open
	defer in.Close()
	go w.Write([]byte("bad\n"))
	require.ErrorIs(t, pipe.Run(t.Context(), ".", in, io.Discard, opts, length), later)
}

// TestPanicInOnError reaches the caller although the input waits for ever.
func TestPanicInOnError(t *testing.T) {
	waits, w := io.Pipe()
	defer w.Close()
	opts := fileproc.Options{FS: fstest.MapFS{}, OnError: func(error) error { panic("no more") }}
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		pipe.Run(t.Context(), ".", io.MultiReader(strings.NewReader("not\n"), waits), io.Discard, opts, length)
	}()
	select {
	case p := <-ended:
		require.Equal(t, "no more", p)
	case <-time.After(20 * time.Second):
		t.Fatal("Run still waits")
	}
}

// TestBatchFails: each error of the batch as a whole is one, also while the input waits for ever.
func TestBatchFails(t *testing.T) {
	dir := makeTree(t, map[string]string{"a": "x", "b": "x"})
	ok := func(*fileproc.File) (int, error) { return 1, nil }
	broken := errors.New("it is broken")
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(broken)
	for _, c := range []struct {
		name string
		ctx  context.Context
		root string
		in   io.Reader // behind it the input waits
		out  io.Writer
		opts fileproc.Options
		fn   func(*fileproc.File) (int, error)
		want string
	}{
		{name: "no root", root: filepath.Join(dir, "not"), want: "not"},
		{name: "no root and no names", root: filepath.Join(dir, "not"), in: strings.NewReader(""), want: "not"},
		{name: "root is a file", root: filepath.Join(dir, "a"), want: "a"},
		{name: "output", out: failingWriter{broken}, want: "it is broken"},
		{name: "short write", out: shortWriter{}, want: "short write"},
		{name: "output of what is skipped", out: failingWriter{broken}, opts: fileproc.Options{Select: func(*fileproc.File) bool { return false }}, want: "it is broken"},
		{name: "input", in: io.MultiReader(strings.NewReader("a\nb"), failingReader{broken}), want: "reading names: it is broken"},
		{name: "endless name", in: endless{}, want: "longer than"},
		{name: "cancelled", ctx: cancelled, want: "it is broken"},
		{name: "panic", fn: func(f *fileproc.File) (int, error) { panic(broken) }, want: filepath.Join(dir, "a") + ": fileproc: panic in a callback: it is broken"},
		{name: "panic in Select", opts: fileproc.Options{Select: func(*fileproc.File) bool { panic(broken) }}, want: filepath.Join(dir, "a") + ": fileproc: panic"},
		{name: "panic in OnProgress", opts: fileproc.Options{OnProgress: func(fileproc.Report) { panic(broken) }}, want: "fileproc: panic"},
		{name: "Files", opts: fileproc.Options{Files: slices.Values([]string{"a"})}, want: "Options.Files"},
		{name: "Symlinks", opts: fileproc.Options{Symlinks: fileproc.SymlinksFiles}, want: "Options.Symlinks"},
		{name: "Roots", opts: fileproc.Options{Roots: []string{"a"}}, want: "Options.Roots"},
		{name: "invalid options", opts: fileproc.Options{Workers: -1}, want: "Options.Workers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			waits, w := io.Pipe()
			defer w.Close()
			if c.in == nil {
				c.in = io.MultiReader(strings.NewReader("a\n"), waits)
			}
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			if c.root == "" {
				c.root = dir
			}
			if c.out == nil {
				c.out = io.Discard
			}
			if c.fn == nil {
				c.fn = ok
			}
			ended := make(chan error, 1)
			go func() { ended <- pipe.Run(c.ctx, c.root, c.in, c.out, c.opts, c.fn) }()
			select {
			case err := <-ended:
				require.ErrorContains(t, err, c.want)
				var p *fileproc.PanicError
				require.Equal(t, strings.HasPrefix(c.name, "panic"), errors.As(err, &p))
			case <-time.After(20 * time.Second):
				t.Fatal("Run still waits")
			}
		})
	}
	require.ErrorContains(t, pipe.Run[int](t.Context(), dir, strings.NewReader(""), io.Discard, fileproc.Options{}, nil), "fn is nil")
	require.ErrorContains(t, pipe.List(t.Context(), filepath.Join(dir, "not"), io.Discard, fileproc.Options{}), "not")
	require.ErrorContains(t, pipe.List(t.Context(), dir, io.Discard, fileproc.Options{Symlinks: fileproc.SymlinksFiles}), "Options.Symlinks")
	require.ErrorContains(t, pipe.List(t.Context(), dir, io.Discard, fileproc.Options{Roots: []string{"a"}}), "Options.Roots")
	require.ErrorIs(t, pipe.List(t.Context(), dir, failingWriter{broken}, fileproc.Options{}), broken)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

type shortWriter struct{}

func (shortWriter) Write(p []byte) (int, error) { return len(p) - 1, nil }

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte("x"), len(p))), nil }

// TestAnswersComeWhileNamesDo: a name is answered although no other follows, whatever the answer.
func TestAnswersComeWhileNamesDo(t *testing.T) {
	dir := makeTree(t, map[string]string{"good": "four", "bad": "bad", "skip": "skip", "binary": "\x00", "unselected": ""})
	in, names := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	opts := fileproc.Options{SkipBinary: true, Select: func(f *fileproc.File) bool { return f.Name() != "unselected" }}
	go func() { ended <- pipe.Run(t.Context(), dir, in, out, opts, length) }()
	watchdog := time.AfterFunc(20*time.Second, func() { answers.CloseWithError(errors.New("no answer")) })
	defer watchdog.Stop()
	buf := make([]byte, 1000)
	for _, name := range []string{"good", "bad", "skip", "not", "binary", "unselected", "/", "good"} {
		_, err := fmt.Fprintln(names, name)
		require.NoError(t, err)
		n, err := answers.Read(buf)
		require.NoError(t, err, name)
		require.Contains(t, string(buf[:n]), `{"path":"`+name+`",`)
	}
	require.NoError(t, names.Close())
	require.NoError(t, <-ended)
}

// TestManyNames: many names are answered from several workers, in whole lines and few writes, and none is kept.
func TestManyNames(t *testing.T) {
	fsys, want := fstest.MapFS{}, map[string]int{}
	var names bytes.Buffer
	for i := range 20_000 {
		name := fmt.Sprintf("d%d/f%d", i%10, i%5000)
		want[name]++
		fsys[name] = &fstest.MapFile{Data: []byte([]string{"four", "skip", "bad"}[i%5000%3])}
		fmt.Fprintln(&names, name)
	}
	var out wholeLines
	require.NoError(t, pipe.Run(t.Context(), ".", &names, &out, fileproc.Options{FS: fsys, Workers: 4}, length))
	require.False(t, out.broken)
	require.Less(t, out.writes, 2000)
	got := map[string]int{}
	for name, answers := range parse(t, out.b.Bytes()) {
		got[name] = len(answers)
	}
	require.Equal(t, want, got)
}

// TestNothingIsWrittenAfterTheEnd, when a write was due.
func TestNothingIsWrittenAfterTheEnd(t *testing.T) {
	fsys := fstest.MapFS{"a": {}}
	var mu sync.Mutex
	over, late := false, false
	out := writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		late = late || over
		return len(p), nil
	})
	ended := errors.New("ended")
	err := pipe.Run(t.Context(), ".", io.MultiReader(strings.NewReader("a\n"), failingReader{ended}), out, fileproc.Options{FS: fsys}, length)
	require.ErrorIs(t, err, ended)
	mu.Lock()
	over = true
	mu.Unlock()
	time.Sleep(3 * pipe.FlushAfter)
	mu.Lock()
	defer mu.Unlock()
	require.False(t, late)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// stored is an object in memory.
type stored struct{ *strings.Reader }

func (s stored) Close() error       { return nil }
func (s stored) ModTime() time.Time { return time.Time{} }

// TestObjects: an object is one request, and what is none is left to the store.
func TestObjects(t *testing.T) {
	store := fstest.MapFS{"a/1": {Data: []byte("one")}, "a/b/2": {Data: []byte("two")}, "closed": {}}
	var mu sync.Mutex
	var asked, opened []string
	record := func(list *[]string, name string) {
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, name)
	}
	opts := fileproc.Options{Ordered: true, FS: pipe.Objects(fsFunc(func(name string) (fs.File, error) {
		record(&asked, name)
		return store.Open(name)
	}), func(name string) (pipe.Object, error) {
		record(&opened, name)
		if f := store[name]; f != nil && name != "closed" {
			return stored{strings.NewReader(string(f.Data))}, nil
		}
		return nil, fs.ErrPermission
	})}
	var list, out bytes.Buffer
	require.NoError(t, pipe.List(t.Context(), ".", &list, opts))
	require.Equal(t, "\"a/1\"\n\"a/b/2\"\n\"closed\"\n", list.String())
	asked, opened = nil, nil
	fn := func(f *fileproc.File) (string, error) { return string(f.Data()), nil }
	require.NoError(t, pipe.Run(t.Context(), ".", strings.NewReader("a/1\na/b/2\n"), &out, opts, fn))
	require.Equal(t, `{"path":"a/1","result":"one"}`+"\n"+`{"path":"a/b/2","result":"two"}`+"\n", out.String())
	require.Empty(t, asked)
	require.ElementsMatch(t, []string{"a/1", "a/b/2"}, opened)
	out.Reset()
	require.NoError(t, pipe.Run(t.Context(), ".", strings.NewReader("a/none\na/1/x\na\n"), &out, opts, fn))
	require.Equal(t, 3, strings.Count(out.String(), `"error":`), out.String())
}

type fsFunc func(name string) (fs.File, error)

func (f fsFunc) Open(name string) (fs.File, error) { return f(name) }
