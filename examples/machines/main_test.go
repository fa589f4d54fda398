package main

func Example() {
	main()
	// Output:
	// node 1 holds orders/42 with fence 1
	// node 2 holds orders/42 with fence 2
	// node 1 holds orders/42 with fence 3
	// node 2 holds orders/42 with fence 4
}
