module uniqueserver

go 1.22
