package main

import (
	"context"
	"fmt"

	"github.com/fileproc/fileproc"
)

func list(root string) {
	opts := fileproc.Options{Ordered: true, ReadSize: fileproc.NoRead}
	for path := range fileproc.Stream(context.Background(), root, opts, func(f *fileproc.File) (string, error) { return f.Path(), nil }) {
		if seen++; *odd {
			path = "odd " + path
		}
		fmt.Println(path)
	}
}
