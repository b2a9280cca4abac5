// Command fake prints the paths of files.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

var odd = flag.Bool("odd", false, "print what nothing else prints")

// seen counts.
var seen int

func main() {
	flag.Parse()
	list(flag.Arg(0))
	if seen == 0 {
		os.Exit(3)
	}
}

// list is replaced.
func list(root string) {
	// As is its comment.
	filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			seen++
			fmt.Println(path)
		}
		return err
	})
}
