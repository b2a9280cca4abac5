package cache_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"slices"
	"testing/fstest"
	"time"

	"github.com/fileproc/fileproc/cache"
)

// A directory with three files in it.
func exampleDir() string {
	dir, err := os.MkdirTemp("", "cache")
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"index.html", "css/a.css", "css/b.css"} {
		full := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(full, []byte("content of "+name), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	return dir
}

// One line puts a cache in front of a directory.
func ExampleNewDir() {
	dir := exampleDir()
	defer os.RemoveAll(dir)
	files, err := cache.NewDir(dir, cache.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer files.Close()

	data, err := files.ReadFile("index.html")
	fmt.Println(string(data), err)
	names, err := fs.Glob(files, "css/*.css")
	fmt.Println(names, err)
	// Output:
	// content of index.html <nil>
	// [css/a.css css/b.css] <nil>
}

// Any fs.FS can be the source. With Trust, files are served from memory without a look
// at the source.
func ExampleNew() {
	source := fstest.MapFS{"a.txt": {Data: []byte("hello")}}
	files, err := cache.New(source, cache.Options{Trust: time.Minute, MaxBytes: 64 << 20, Policy: cache.Hybrid})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if _, err := files.ReadFile("a.txt"); err != nil {
			log.Fatal(err)
		}
	}
	s := files.Stats().Files
	fmt.Println(s.Hits, "hits,", s.Loads, "load")
	// Output: 2 hits, 1 load
}

// The function is called again for a file that has changed.
func ExampleResults() {
	source := fstest.MapFS{"a.txt": {Data: []byte("one two three"), ModTime: time.Unix(1, 0)}}
	files, err := cache.New(source, cache.Options{})
	if err != nil {
		log.Fatal(err)
	}
	words, err := cache.NewResults(files, cache.ResultOptions[int]{}, func(f cache.File) (int, error) {
		fmt.Println("counting the words of", f.Name)
		return len(bytes.Fields(f.Data)), nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		fmt.Println(words.Load("a.txt"))
	}
	source["a.txt"] = &fstest.MapFile{Data: []byte("four"), ModTime: time.Unix(2, 0)}
	fmt.Println(words.Load("a.txt"))
	// Output:
	// counting the words of a.txt
	// 3 <nil>
	// 3 <nil>
	// counting the words of a.txt
	// 1 <nil>
}

// With WriteBack a file is in the store after a flush.
func ExampleFS_WriteFile() {
	dir := exampleDir()
	defer os.RemoveAll(dir)
	files, err := cache.NewDir(dir, cache.Options{
		Write:         cache.WriteBack,
		FlushInterval: 10 * time.Second,
		OnFlushError:  func(name string, err error) { log.Printf("%s is still dirty: %v", name, err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := files.WriteFile("index.html", []byte("new")); err != nil {
		log.Fatal(err)
	}
	fmt.Println(files.Dirty())
	if err := files.Close(); err != nil { // flushes
		log.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "index.html"))
	fmt.Println(string(data), err)
	// Output:
	// [index.html]
	// new <nil>
}

// A name with a slash at its end stands for the directory and all below it.
func ExampleFS_Invalidate() {
	source := fstest.MapFS{"dir/a": {}, "dir/sub/b": {}, "dir2/c": {}}
	files, err := cache.New(source, cache.Options{Trust: cache.Forever})
	if err != nil {
		log.Fatal(err)
	}
	for name := range source {
		if _, err := files.ReadFile(name); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(files.Invalidate("dir/"), "files of dir, none of dir2")
	// Output: 2 files of dir, none of dir2
}

// The counters are a struct for JSON and expvar.
func ExampleFS_Stats() {
	files, err := cache.New(fstest.MapFS{"a": {}}, cache.Options{Trust: cache.Forever})
	if err != nil {
		log.Fatal(err)
	}
	expvar.Publish("files", expvar.Func(func() any { return files.Stats() }))
	for range 4 {
		if _, err := files.ReadFile("a"); err != nil {
			log.Fatal(err)
		}
	}
	var s cache.Stats
	if err := json.Unmarshal([]byte(expvar.Get("files").String()), &s); err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Files.Hits, s.Files.Misses, s.Files.HitRate())
	// Output: 3 1 0.75
}

// Warm reads files before somebody asks for them: first those that a list or a pattern
// names.
func ExampleFS_Warm() {
	dir := exampleDir()
	defer os.RemoveAll(dir)
	files, err := cache.NewDir(dir, cache.Options{Trust: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	defer files.Close()
	report, err := files.Warm(context.Background(), cache.WarmOptions{
		Include:    []string{"**/*.html", "**/*.css"},
		First:      []string{"index.html"},
		OnProgress: func(r cache.WarmReport) { log.Print(r.Warmed, " files") },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Warmed, "files,", report.Bytes, "bytes, full:", report.Full)
	// Output: 3 files, 61 bytes, full: false
}

// The files that were used most are warmed at the next start.
func ExampleFS_Entries() {
	source := fstest.MapFS{"a": {}, "b": {Data: []byte("hello")}, "c": {}}
	files, err := cache.New(source, cache.Options{Trust: cache.Forever})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"a", "b", "b", "c", "c", "c"} {
		if _, err := files.ReadFile(name); err != nil {
			log.Fatal(err)
		}
	}
	var list bytes.Buffer // or a file
	if err := json.NewEncoder(&list).Encode(files.Entries()[:2]); err != nil {
		log.Fatal(err)
	}

	var entries []cache.Entry
	if err := json.NewDecoder(&list).Decode(&entries); err != nil {
		log.Fatal(err)
	}
	next, err := cache.New(source, cache.Options{Trust: cache.Forever})
	if err != nil {
		log.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	report, err := next.Warm(context.Background(), cache.WarmOptions{Files: slices.Values(names)})
	fmt.Println(names, report.Warmed, err)
	// Output: [c b] 2 <nil>
}

// A snapshot is saved before the end, and loaded at the next start.
func ExampleFS_LoadSnapshot() {
	dir := exampleDir()
	defer os.RemoveAll(dir)
	snapshot := filepath.Join(dir, "snapshot")
	source := fstest.MapFS{"a": {Data: []byte("hello"), ModTime: time.Unix(1, 0)}}
	files, err := cache.New(source, cache.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := files.ReadFile("a"); err != nil {
		log.Fatal(err)
	}
	if err := files.SaveSnapshot(snapshot); err != nil {
		log.Fatal(err)
	}

	next, err := cache.New(source, cache.Options{})
	if err != nil {
		log.Fatal(err)
	}
	n, err := next.LoadSnapshot(snapshot)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Print(err) // the files are read again
	}
	_, err = next.ReadFile("a")
	fmt.Println(n, "loaded,", next.Stats().Files.Hits, "hit", err)
	// Output: 1 loaded, 1 hit <nil>
}

// mapStore is a store that writes to a map, as others do to a bucket or a database.
type mapStore struct{ fstest.MapFS }

func (s mapStore) WriteFile(name string, data []byte) (fs.FileInfo, error) {
	s.MapFS[name] = &fstest.MapFile{Data: bytes.Clone(data), Mode: 0o644, ModTime: time.Now()}
	return s.Stat(name)
}

func (s mapStore) Remove(name string) error {
	delete(s.MapFS, name)
	return nil
}

// A Store takes what is written. Any type with these two methods can be a Store.
func ExampleStore() {
	source := fstest.MapFS{}
	files, err := cache.New(source, cache.Options{Store: mapStore{source}})
	if err != nil {
		log.Fatal(err)
	}
	if err := files.WriteFile("a", []byte("hello")); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", source["a"].Data)
	// Output: hello
}

// Like a write, a removal is dirty until a flush; Discard takes it back.
func ExampleFS_Flush() {
	source := fstest.MapFS{"a": {}, "b": {}}
	files, err := cache.New(source, cache.Options{Store: mapStore{source}, Write: cache.WriteBack, FlushInterval: cache.Forever})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		if err := files.Remove(name); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(files.Dirty(), files.Discard("b"), len(source))
	if err := files.Flush(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(source))
	// Output:
	// [a b] 1 2
	// 1
}
