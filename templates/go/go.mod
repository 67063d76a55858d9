module example.com/{{name}}

go 1.19
