module gosample

go 1.26
