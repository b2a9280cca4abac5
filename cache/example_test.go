package cache_test

import (
	"bytes"
	"encoding/json"
	"expvar"
	"fmt"
	"io/fs"
	"log"
	"os"
	"path/filepath"
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

// What a function makes of a file is made again when the file has changed.
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

func ExampleFS_InvalidatePrefix() {
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
	fmt.Println(files.InvalidatePrefix("dir"), "files of dir, none of dir2")
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
