package main

func Example() {
	list("go.mod")
	// Output: go.mod
}
