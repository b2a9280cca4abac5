package gitindex

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A repo is a repository of the git command.
type repo struct{ git, dir string }

func newRepo(t testing.TB, args ...string) repo {
	t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git to compare with: ", err)
	}
	for name, value := range map[string]string{"HOME": t.TempDir(), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.DevNull} {
		t.Setenv(name, value)
	}
	r := repo{git, t.TempDir()}
	r.run(t, append([]string{"init", "-q"}, args...)...)
	return r
}

func (r repo) run(t testing.TB, args ...string) string {
	t.Helper()
	return r.feed(t, "", args...)
}

func (r repo) feed(t testing.TB, in string, args ...string) string {
	t.Helper()
	cmd := exec.Command(r.git, append([]string{"-c", "user.name=n", "-c", "user.email=e", "-c", "core.fileMode=false"}, args...)...)
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(in)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "git %q: %s", args, &stderr)
	return string(out)
}

// index reads the repository's index.
func (r repo) index(t testing.TB) *Index {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.dir, ".git", "index"))
	require.NoError(t, err)
	x, err := Parse(content, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(r.dir, ".git", name)) })
	require.NoError(t, err)
	return x
}

// check compares the index with what git lists, path by path, and what is between and beside these paths.
func (r repo) check(t testing.TB) *Index {
	t.Helper()
	x := r.index(t)
	args := []string{"ls-files", "-s", "-z"}
	if x.own.isSparse || x.base.isSparse {
		args = append(args, "--sparse")
	}
	kinds, dirs := map[string]Kind{}, map[string]bool{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(r.run(t, args...), "\x00"), "\x00") {
		if entry == "" {
			continue
		}
		mode, name, _ := strings.Cut(entry, "\t")
		kinds[name] = map[string]Kind{"100": File, "120": File, "160": Repository, "040": Directory}[mode[:3]]
		for dir := path.Dir(strings.TrimSuffix(name, "/")); dir != "."; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	for name, kind := range kinds {
		require.Equal(t, kind, x.Kind(name), "%q", name)
		if kind == Directory {
			require.True(t, x.HasBelow(name), "%q", name)
			require.True(t, x.HasBelow(name+"x/"), "%q", name)
			require.Equal(t, File, x.Kind(name+"x/y"), "%q", name)
			continue
		}
		for _, other := range []string{name + "x", name + "/x", name[:len(name)-1], name + "-", "x" + name} {
			if !x.isInSparse(other) {
				require.Equal(t, kinds[other], x.Kind(other), "%q", other)
			}
		}
		for _, other := range []string{name, name + "x", name[:len(name)-1]} {
			if other != "" && !x.isInSparse(other+"/") {
				require.Equal(t, dirs[other], x.HasBelow(other+"/"), "%q", other)
			}
		}
	}
	r.checkIn(t, x, kinds, dirs)
	r.checkFolded(t, kinds, dirs)
	for dir := range dirs {
		require.True(t, x.HasBelow(dir+"/"), "%q", dir)
		require.Equal(t, kinds[dir], x.Kind(dir), "%q", dir)
	}
	return x
}

// checkFolded looks up the names in other cases: of ASCII letters only.
func (r repo) checkFolded(t testing.TB, kinds map[string]Kind, dirs map[string]bool) {
	t.Helper()
	x := r.index(t)
	require.NoError(t, x.FoldCase())
	upper := func(s string) string {
		b := []byte(s)
		for i, c := range b {
			if 'a' <= c && c <= 'z' {
				b[i] -= 'a' - 'A'
			}
		}
		return string(b)
	}
	folded, differ := map[string]Kind{}, map[string]bool{} // names that differ in case only may be of any of these kinds
	for name, kind := range kinds {
		other, has := folded[upper(name)]
		differ[upper(name)] = has && other != kind
		folded[upper(name)] = kind
	}
	for name, kind := range folded {
		if kind == Directory || differ[name] {
			continue
		}
		require.Equal(t, kind, x.Kind(name), "%q", name)
		require.Equal(t, folded["X"+name], x.Kind("X"+name), "%q", name)
		var d Dir
		at := strings.LastIndexByte(name, '/') + 1
		if x.In(&d, name[:at]); kind == File {
			require.True(t, d.Has([]byte(name[at:]), 0), "%q", name)
			require.NotNil(t, d.Find(name[at:]), "%q", name)
		}
		require.Equal(t, folded[name[:at]+"X"+name[at:]] == File, d.Has([]byte("X"+name[at:]), 0) && d.Known, "%q", name)
	}
	for dir := range dirs {
		require.True(t, x.HasBelow(upper(dir)+"/"), "%q", dir)
	}
}

// checkIn compares what the index has in each directory with these paths.
func (r repo) checkIn(t testing.TB, x *Index, kinds map[string]Kind, dirs map[string]bool) {
	t.Helper()
	want := map[string]map[string]Kind{"none/": {}}
	add := func(name string, kind Kind) {
		i := strings.LastIndexByte(strings.TrimSuffix(name, "/"), '/') + 1
		if want[name[:i]] == nil {
			want[name[:i]] = map[string]Kind{}
		}
		want[name[:i]][name[i:]] = kind
	}
	for name, kind := range kinds {
		add(name, kind)
	}
	for dir := range dirs {
		add(dir+"/", Directory)
	}
	for dir, entries := range want {
		var d Dir
		x.In(&d, dir)
		require.True(t, d.Known)
		got := map[string]Kind{}
		for i, e := range d.Entries {
			require.True(t, i == 0 || d.Entries[i-1].Name < e.Name)
			got[e.Name] = File
			name, typ := e.NameAndType()
			if typ == fs.ModeDir {
				got[e.Name] = Directory
			}
			require.True(t, d.Has([]byte(name), typ))
			require.Equal(t, entries[name+"-"] == File, d.Has([]byte(name+"-"), 0))
		}
		for _, e := range d.Submodules {
			got[e.Name] = Repository
		}
		require.Equal(t, entries, got, "%q", dir)
		for name, kind := range entries {
			if kind == Directory && kinds[dir+name] == Directory {
				x.In(&d, dir+name)
				require.False(t, d.Known)
				require.True(t, d.Has([]byte("x"), 0))
			}
		}
	}
}

// randomNames returns different paths, many of which begin alike, in which no file is a directory.
func randomNames(r *rand.Rand, n int) (names []string) {
	used := map[string]bool{}
	for len(names) < n {
		var parts []string
		for range 1 + r.IntN(4) {
			part := []string{"a", "b", "a-b", "a.b", "A", "é", "\xff", "longer name", strings.Repeat("x", r.IntN(200)+1)}[r.IntN(9)]
			parts = append(parts, part+fmt.Sprint(r.IntN(4)))
		}
		name := strings.Join(parts, "/") + ".f"
		if !used[name] {
			used[name] = true
			names = append(names, name)
		}
	}
	return names
}

// put adds paths to the index without files.
func (r repo) put(t testing.TB, names []string, mode string) {
	t.Helper()
	id := strings.TrimSpace(r.feed(t, "x", "hash-object", "-w", "--stdin"))
	var in strings.Builder
	for _, name := range names {
		fmt.Fprintf(&in, "%s %s 0\t%s\x00", mode, id, name)
	}
	r.feed(t, in.String(), "update-index", "-z", "--index-info")
}

// TestAgainstGit compares each form that an index has with git's own listing of it.
func TestAgainstGit(t *testing.T) {
	rounds, n := 4, 400
	if testing.Short() {
		rounds, n = 1, 100
	}
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "4"} {
			for _, split := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, split: %v", format, version, split), func(t *testing.T) {
					r := newRepo(t, "--object-format="+format)
					rnd := rand.New(rand.NewPCG(3, 4))
					names := randomNames(rnd, n)
					r.put(t, names, "100644")
					r.run(t, "update-index", "--index-version="+version)
					r.run(t, "config", "splitIndex.maxPercentChange", "100") // the shared file stays
					if split {
						r.run(t, "update-index", "--split-index")
					}
					r.check(t)
					for range rounds {
						rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
						k := len(names) / 10
						for i, flag := range []string{"--force-remove", "--skip-worktree", "--assume-unchanged"} {
							r.feed(t, strings.Join(names[i*k:(i+1)*k], "\x00")+"\x00", "update-index", flag, "-z", "--stdin")
						}
						r.put(t, names[3*k:4*k], "160000")
						r.put(t, names[4*k:5*k], "120000")
						gone := names[:k]
						names = names[k:]
						more := randomNames(rnd, n)[:k]
						more = slices.DeleteFunc(more, func(name string) bool { return slices.Contains(names, name) })
						r.put(t, more, "100755")
						names = append(names, more...)
						x := r.check(t)
						for _, name := range gone {
							require.Equal(t, slices.Contains(names, name), x.Kind(name) != None, "%q", name)
						}
						require.Equal(t, split, x.base.count > 0)
						require.Equal(t, split, len(x.heads) > 0)
						require.Equal(t, version == "4", x.own.isPacked)
					}
				})
			}
		}
	}
}

// What is to be added, and what is in conflict, is tracked too.
func TestEntriesOfOtherKinds(t *testing.T) {
	r := newRepo(t)
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, "later"), nil, 0o666))
	r.run(t, "add", "-N", "later")
	id := strings.TrimSpace(r.feed(t, "x", "hash-object", "-w", "--stdin"))
	in := ""
	for stage := 1; stage <= 3; stage++ {
		in += fmt.Sprintf("100644 %s %d\td/both\n", id, stage)
	}
	r.feed(t, in, "update-index", "--index-info")
	x := r.check(t)
	require.Equal(t, File, x.Kind("later"))
	require.Equal(t, File, x.Kind("d/both"))
	require.True(t, x.HasBelow("d/"))
}

// A sparse index has a directory in place of what is in it.
func TestSparse(t *testing.T) {
	for _, version := range []string{"2", "4"} {
		r := newRepo(t)
		for _, name := range []string{"in/f", "out/a/f", "out/b", "top"} {
			file := filepath.Join(r.dir, filepath.FromSlash(name))
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o777))
			require.NoError(t, os.WriteFile(file, nil, 0o666))
		}
		r.run(t, "add", ".")
		r.run(t, "commit", "-qm", "m")
		r.run(t, "update-index", "--index-version="+version)
		r.run(t, "sparse-checkout", "set", "--cone", "--sparse-index", "in")
		x := r.check(t)
		require.True(t, x.own.isSparse)
		require.Equal(t, Directory, x.Kind("out/"))
		require.Equal(t, File, x.Kind("in/f"))
		require.Equal(t, None, x.Kind("in/g"))
	}
}

// samples returns small indexes of all forms, and what opens the shared files of those that are split.
func samples(t testing.TB) (indexes [][]byte, open func(string) ([]byte, error)) {
	shared := map[string][]byte{}
	for _, format := range []string{"sha1", "sha256"} {
		for _, version := range []string{"2", "4"} {
			r := newRepo(t, "--object-format="+format)
			r.put(t, []string{"a", "a/b", "ab/c/d", "x", "y"}, "100644")
			r.run(t, "update-index", "--index-version="+version)
			read := func() {
				content, err := os.ReadFile(filepath.Join(r.dir, ".git", "index"))
				require.NoError(t, err)
				indexes = append(indexes, content)
			}
			read()
			r.run(t, "config", "splitIndex.maxPercentChange", "100")
			r.run(t, "update-index", "--split-index")
			r.put(t, []string{"x"}, "160000")
			r.feed(t, "y\n", "update-index", "--force-remove", "--stdin")
			r.put(t, []string{"z"}, "120000")
			read()
			files, err := filepath.Glob(filepath.Join(r.dir, ".git", "sharedindex.*"))
			require.NoError(t, err)
			for _, file := range files {
				content, err := os.ReadFile(file)
				require.NoError(t, err)
				shared[filepath.Base(file)] = content
			}
		}
	}
	return indexes, func(name string) ([]byte, error) {
		if content, ok := shared[name]; ok {
			return content, nil
		}
		return nil, os.ErrNotExist
	}
}

// An index that is cut short, or of another version, is an error, and so is one whose parts do not fit together.
func TestDamaged(t *testing.T) {
	indexes, open := samples(t)
	for _, whole := range indexes {
		_, err := Parse(whole, open)
		require.NoError(t, err)
		for end := range len(whole) - 1 {
			_, err := Parse(whole[:end:end], open)
			require.Error(t, err, end)
		}
		for _, version := range []uint32{0, 1, 5} {
			other := bytes.Clone(whole)
			binary.BigEndian.PutUint32(other[4:], version)
			_, err = Parse(other, open)
			require.ErrorContains(t, err, fmt.Sprintf("version %d", version))
		}
		for _, count := range []uint32{1, 4, 6, 1 << 31, 1<<32 - 1} {
			other := bytes.Clone(whole)
			if binary.BigEndian.Uint32(other[8:]) != count {
				binary.BigEndian.PutUint32(other[8:], count)
				_, err = Parse(other, open)
				require.Error(t, err, count)
			}
		}
	}
	_, err := Parse(indexes[1], func(string) ([]byte, error) { return nil, os.ErrNotExist })
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = Parse(indexes[1], func(string) ([]byte, error) { return indexes[1], nil })
	require.ErrorContains(t, err, "split")
	_, err = Parse(bytes.Replace(indexes[1], []byte("link"), []byte("lonk"), 1), open)
	require.ErrorContains(t, err, "unknown")
	_, err = Parse(bytes.Replace(indexes[1], []byte("link"), []byte("LINK"), 1), open)
	require.ErrorContains(t, err, "no name")
}

// FuzzParse: whatever the bytes, Parse and a search end, and what Parse has taken is searched as it was read.
func FuzzParse(f *testing.F) {
	indexes, open := samples(f)
	for _, index := range indexes {
		f.Add(index, []byte{})
	}
	f.Fuzz(func(t *testing.T, index, shared []byte) {
		from := open
		if len(shared) > 0 {
			from = func(string) ([]byte, error) { return shared, nil }
		}
		x, err := Parse(index, from)
		if err != nil {
			return
		}
		for _, p := range []*part{&x.own, &x.base} {
			for c := p.cursor(0); c.at < p.count; {
				require.NoError(t, c.next())
				kind := x.Kind(string(c.name))
				if p == &x.own && len(c.name) > 0 {
					require.NotEqual(t, None, kind)
					if i := bytes.IndexByte(c.name, '/'); i > 0 {
						require.True(t, x.HasBelow(string(c.name[:i+1])))
					}
				}
			}
		}
	})
}

// TestHasSize: git 2.43 and later write 1<<31 for a multiple of 4 GiB. 0 means that only the content shows a change.
func TestHasSize(t *testing.T) {
	const empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
	for _, c := range []struct {
		written uint32
		id      string
		size    int64
		want    bool
	}{
		{3, "", 3, true}, {3, "", 4, false}, {3, "", 3 + 4<<30, true}, {3, "", 0, false},
		{1 << 31, "", 4 << 30, true}, {1 << 31, "", 8 << 30, true}, {1 << 31, "", 2 << 30, true}, {1 << 31, "", 0, false},
		{0, empty, 0, true}, {0, "", 0, false}, {0, "", 3, false}, {0, "", 4 << 30, false},
	} {
		e := Entry{head: make([]byte, hashAt+20+2)}
		binary.BigEndian.PutUint32(e.head[sizeAt:], c.written)
		_, err := hex.Decode(e.head[hashAt:], []byte(c.id))
		require.NoError(t, err)
		require.Equal(t, c.want, e.HasSize(c.size), c)
	}
}
