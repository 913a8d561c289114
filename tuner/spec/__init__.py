"""What a study is: its search space, its file,
its definition, its policy, its objectives and its seeds.
"""
