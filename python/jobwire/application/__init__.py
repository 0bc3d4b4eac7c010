"""What an application uses: the application, its job types, its clients and middleware."""
