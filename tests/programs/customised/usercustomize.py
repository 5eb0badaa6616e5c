print("and for one user", __name__)
